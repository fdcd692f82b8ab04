#include "io/file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "io/error.h"
#include "io/json.h"
#include "io/test_folder.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;

size_t count_files(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(File, IsReplacedAsAWholeOrLeftAsItWas) {
  TestFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("half of the new");
  }  // destroyed without commit, as when an exception passes
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(count_files(folder.path()), 1u);  // the temporary is gone
  write_file(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
}

TEST(File, HeaderCanBeWrittenLast) {
  TestFolder folder;
  AtomicFile file(folder / "a");
  file.write("____body");
  file.write_at(0, "head", 4);
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "headbody");
}

TEST(File, ErrorsNameTheFile) {
  TestFolder folder;
  EXPECT_NE(message_of<InputError>([&] { read_file(folder / "missing"); }).find("missing"), std::string::npos);
  EXPECT_NE(message_of<InputError>([&] { read_file(folder.path()); }).find("not a regular file"),
            std::string::npos);
  write_file(folder / "big", std::string(100, 'x'));
  EXPECT_NE(message_of<InputError>([&] { read_file(folder / "big", 99); }).find("100 bytes"), std::string::npos);
  EXPECT_NE(message_of<RunError>([&] { write_file(folder / "no" / "such", "x"); }).find("such"), std::string::npos);
}

TEST(Folder, TakesTheOldOnesPlaceInOneStep) {
  TestFolder folder;
  fs::path target = folder / "target";
  for (const char* content : {"first", "second"}) {
    AtomicFolder next(target);
    write_file(next.temporary() / "file", content);
    next.commit();
    EXPECT_EQ(read_file(target / "file"), content);
  }
  {
    AtomicFolder abandoned(target);
    write_file(abandoned.temporary() / "file", "third");
  }
  EXPECT_EQ(read_file(target / "file"), "second");
  EXPECT_EQ(count_files(folder.path()), 1u);
}

TEST(Lock, ExcludesASecondHolderAndIsReleased) {
  TestFolder folder;
  {
    FolderLock lock(folder.path());
    EXPECT_NE(message_of<RunError>([&] { FolderLock second(folder.path()); }).find("in use"), std::string::npos);
  }
  EXPECT_NO_THROW(FolderLock(folder.path()));
}

TEST(Leftovers, OfKilledProcessesGoAndNothingElse) {
  TestFolder folder;
  folder.file(".step-1.tmp-4711/model", "x");
  folder.file(".run.json.tmp-12", "x");
  for (const char* kept : {"run.json", ".hidden", "a.tmp-3", "deep/.x.tmp-1"}) folder.file(kept, "x");
  remove_leftovers(folder.path());
  remove_leftovers(folder / "missing");
  EXPECT_FALSE(std::filesystem::exists(folder / ".step-1.tmp-4711"));
  EXPECT_FALSE(std::filesystem::exists(folder / ".run.json.tmp-12"));
  for (const char* kept : {"run.json", ".hidden", "a.tmp-3", "deep/.x.tmp-1"})
    EXPECT_TRUE(std::filesystem::exists(folder / kept)) << kept;
}

TEST(JsonText, BytesThatAreNoUtf8AreReplaced) {
  TestFolder folder;
  write_json(folder / "a.json", Json{{"name", "caf\xe9"}});
  EXPECT_EQ(read_json(folder / "a.json")["name"], "caf\uFFFD");
}

TEST(JsonLines, AnIncompleteLastLineIsLeftOut) {
  TestFolder folder;
  append_line(folder / "log", R"({"step":1})");
  append_line(folder / "log", R"({"step":2})");
  std::ofstream(folder / "log", std::ios::app) << R"({"ste)";
  std::vector<Json> lines = read_json_lines(folder / "log");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["step"], 2);
  std::ofstream(folder / "log", std::ios::app) << "\n";
  EXPECT_NE(message_of<InputError>([&] { read_json_lines(folder / "log"); }).find("line 3"), std::string::npos);
}

TEST(JsonGet, TakesNoNumberThatTheTypeCannotHold) {
  const auto refused = [](const char* text, auto type) {
    using Type = decltype(type);
    return message_of<InputError>([&] { json_get<Type>(Json::parse(text), "n", "here"); }).find("wrong type") !=
           std::string::npos;
  };
  for (const char* number : {"1.5", "1e30", "-1e300", "true", "\"1\"", "null", "[1]", "18446744073709551615"}) {
    const std::string text = format_text("{{\"n\": {}}}", number), list = format_text("{{\"n\": [0, {}]}}", number);
    EXPECT_TRUE(refused(text.c_str(), int64_t{})) << number;
    EXPECT_TRUE(refused(list.c_str(), std::vector<int64_t>{})) << number;
  }
  for (const char* number : {"-1", "1.0", "18446744073709551616"})
    EXPECT_TRUE(refused(format_text("{{\"n\": {}}}", number).c_str(), uint64_t{})) << number;
  for (const char* number : {"-2147483649", "2147483648"})
    EXPECT_TRUE(refused(format_text("{{\"n\": {}}}", number).c_str(), int{})) << number;
  EXPECT_EQ(json_get<uint64_t>(Json::parse("{\"n\": 18446744073709551615}"), "n", "here"), UINT64_MAX);
  EXPECT_EQ(json_get<int64_t>(Json::parse("{\"n\": -9223372036854775808}"), "n", "here"), INT64_MIN);
  EXPECT_EQ(json_get<double>(Json::parse("{\"n\": 1e300}"), "n", "here"), 1e300);
  EXPECT_TRUE(refused("{\"n\": true}", double{}));
  EXPECT_TRUE(refused("{\"n\": 1}", bool{}));
}

TEST(JsonGet, NamesTheKeyAndThePlace) {
  Json value = {{"number", 3}};
  EXPECT_EQ(json_get<int>(value, "number", "here"), 3);
  EXPECT_EQ(message_of<InputError>([&] { json_get<int>(value, "other", "here"); }), "here: key 'other' is missing");
  EXPECT_NE(message_of<InputError>([&] { json_get<std::string>(value, "number", "here"); }).find("wrong type"),
            std::string::npos);
}

}  // namespace
}  // namespace depthroute
