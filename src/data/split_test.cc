#include "data/split.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "data/document_set.h"
#include "data/test_support.h"
#include "io/format.h"

namespace depthroute {
namespace {

TEST(Split, IsTheFormula) {
  SplitRule rule{7, {0.5, 0.3, 0.2}};
  for (int i = 0; i < 1000; ++i) {
    std::string text = "document " + std::to_string(i);
    long double position =
        std::ldexp(static_cast<long double>(XXH3_64bits_withSeed(text.data(), text.size(), 7)), -64);
    Split expected = position < 0.2L ? Split::kTest : position < 0.5L ? Split::kValidation : Split::kTrain;
    EXPECT_EQ(rule.split_of(rule.key(text)), expected);
  }
}

TEST(Split, FractionsAreMetWithinChance) {
  constexpr int kDocuments = 100'000;
  for (uint64_t seed : {0, 1, 12345}) {
    SplitRule rule{seed, {0.9, 0.07, 0.03}};
    std::array<int, 3> counts{};
    for (int i = 0; i < kDocuments; ++i) ++counts[static_cast<size_t>(rule.split_of(rule.key(std::to_string(i))))];
    for (size_t i = 0; i < 3; ++i) {
      double expected = rule.fractions[i] * kDocuments, deviation = std::sqrt(expected * (1 - rule.fractions[i]));
      EXPECT_NEAR(counts[i], expected, 4 * deviation);
    }
  }
}

TEST(Split, TheSeedChangesItAndZeroLeavesASideEmpty) {
  SplitRule one{1, {0.5, 0.5, 0}}, two{2, {0.5, 0.5, 0}};
  int differ = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = std::to_string(i);
    differ += one.split_of(one.key(text)) != two.split_of(two.key(text)) ? 1 : 0;
    EXPECT_NE(one.split_of(one.key(text)), Split::kTest);
  }
  EXPECT_NEAR(differ, 500, 4 * std::sqrt(250.0));
}

TEST(Split, ChecksAndParsesFractions) {
  EXPECT_EQ(parse_fractions("0.9,0.05,0.05"), (std::array<double, 3>{0.9, 0.05, 0.05}));
  for (const char* bad :
       {"", "1", "0.5,0.5", "0.5,0.3,0.2,", "0.5,0.3,0.2,0", "a,b,c", "0.5;0.3;0.2", " 0.5,0.3,0.2", "0.5,,0.5"}) {
    EXPECT_TRUE(contains(input_error([&] { parse_fractions(bad); }), "is not a split")) << bad;
  }
  for (std::array<double, 3> bad :
       {std::array{0.5, 0.5, 0.5}, {0.0, 0.5, 0.5}, {1.5, -0.5, 0.0}, {std::nan(""), 0.5, 0.5}}) {
    EXPECT_THROW((SplitRule{0, bad}.check()), InputError);
  }
  EXPECT_NO_THROW((SplitRule{0, {1, 0, 0}}.check()));
  EXPECT_NO_THROW((SplitRule{0, {0.7, 0.2, 0.1}}.check()));
  EXPECT_THROW(split_named("valid"), InputError);
  EXPECT_EQ(split_named("val"), Split::kValidation);
}

TEST(DocumentSetHash, IsTheSumOfTheHashesInAnyOrder) {
  std::vector<std::string> documents = made_up_documents(200);
  documents.push_back(documents[0]);
  DocumentSetHash forward, backward, once;
  unsigned __int128 sum = 0;
  for (const std::string& text : documents) {
    forward.add(document_hash(text));
    XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
    sum += static_cast<unsigned __int128>(hash.high64) << 64 | hash.low64;
  }
  for (auto text = documents.rbegin(); text != documents.rend(); ++text) backward.add(document_hash(*text));
  for (size_t i = 1; i + 1 < documents.size(); ++i) once.add(document_hash(documents[i]));
  EXPECT_EQ(forward.hex(),
            format_text("{:016x}{:016x}", static_cast<uint64_t>(sum >> 64), static_cast<uint64_t>(sum)));
  EXPECT_EQ(forward.hex(), backward.hex());
  EXPECT_NE(forward.hex(), once.hex());  // two equal documents do not cancel
}

TEST(DocumentSet, FindsEveryRepetitionAndStaysWithinItsBound) {
  const int64_t bytes = int64_t{1} << 20, capacity = DocumentSet::capacity(bytes);
  EXPECT_EQ(capacity, (bytes / 16) * 3 / 4);
  EXPECT_EQ(DocumentSet::capacity(bytes * 2 - 1), capacity) << "a power of two of slots";
  DocumentSet set(bytes);
  const auto hash = [](int64_t i) { return document_hash(std::to_string(i)); };
  EXPECT_TRUE(set.insert({})) << "zeros are a hash like any other";
  for (int64_t i = 1; i < capacity; ++i) EXPECT_TRUE(set.insert(hash(i)));
  EXPECT_FALSE(set.insert({}));
  for (int64_t i = 1; i < capacity; ++i) EXPECT_FALSE(set.insert(hash(i)));
  try {
    set.insert(hash(capacity));
    FAIL() << "the table is full";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--dedup-memory"), std::string::npos);
  }
  EXPECT_FALSE(set.insert(hash(1))) << "what it holds it still knows";
}

}  // namespace
}  // namespace depthroute
