#include "io/config.h"

#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace depthroute {
namespace {

const char* const kText = R"(
seed = 3
[train]
rate = 1          # an integer where a number is asked for
tokens = 1_000
names = ["a", "b"]
on = true
[[pairs]]
left = "x"
)";

Config config(const std::vector<std::string>& overrides = {}) {
  return Config::parse(kText, "c.toml", overrides);
}

TEST(Config, ReadsEveryType) {
  Config c = config();
  EXPECT_EQ(c.integer("seed"), 3);
  Config train = c.table("train");
  EXPECT_EQ(train.number("rate"), 1.0);
  EXPECT_EQ(train.integer("tokens"), 1000);
  EXPECT_EQ(train.strings("names"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(train.boolean("on"));
  EXPECT_EQ(train.string("absent", "default"), "default");
  ASSERT_EQ(c.tables("pairs").size(), 1u);
  EXPECT_EQ(c.tables("pairs")[0].string("left"), "x");
}

TEST(Config, UnknownKeyNamesTheNearestKnownOne) {
  Config train = config().table("train");
  train.number("rates", 0);
  train.integer("tokens");
  train.strings("names");
  train.boolean("on");
  EXPECT_EQ(message_of<InputError>([&] { train.finish(); }),
            "c.toml, line 4, key 'train.rate': unknown key; did you mean 'rates'?");
}

TEST(Config, WrongTypesAndRangesNameTheLine) {
  Config train = config().table("train");
  EXPECT_EQ(message_of<InputError>([&] { train.string("tokens"); }),
            "c.toml, line 5, key 'train.tokens': 1000 is not a string");
  EXPECT_EQ(message_of<InputError>([&] { train.integer("names"); }),
            "c.toml, line 6, key 'train.names': [\"a\",\"b\"] is not an integer");
  EXPECT_NE(message_of<InputError>([&] { train.integer_between("tokens", 0, 1, 10); }).find("not between 1 and 10"),
            std::string::npos);
  EXPECT_EQ(message_of<InputError>([&] { train.integer("absent"); }), "c.toml: the key 'train.absent' is missing");
  EXPECT_NE(message_of<InputError>([&] { config().table("seed"); }).find("not a table"), std::string::npos);
}

TEST(Config, OverridesWin) {
  Config c = config({"train.rate=0.5", "seed=9", "train.word=plain", "new.inner.key=[1, 2]"});
  EXPECT_EQ(c.integer("seed"), 9);
  EXPECT_EQ(c.table("train").number("rate"), 0.5);
  EXPECT_EQ(c.table("train").string("word"), "plain");
  EXPECT_EQ(c.table("new").table("inner").integers("key"), (std::vector<int64_t>{1, 2}));
  EXPECT_NE(message_of<InputError>([] { config({"novalue"}); }), "");
  EXPECT_NE(message_of<InputError>([] { config({"seed.inner=1"}); }), "");
}

TEST(Config, IllFormedFilesNameTheLine) {
  EXPECT_NE(message_of<InputError>([] { Config::parse("a = 1\nb = = 2\n", "c.toml"); }).find("c.toml, line 2"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] { Config::parse("a = \"\xff\"\n", "c.toml"); }).find("c.toml"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] { Config::read("/no/such/file.toml"); }).find("file.toml"),
            std::string::npos);
}

}  // namespace
}  // namespace depthroute
