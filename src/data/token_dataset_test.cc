#include "data/token_dataset.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "data/test_support.h"
#include "data/token_shard.h"

namespace depthroute {
namespace {

// A shard written by hand, as the layout says.
std::string shard_bytes(const std::vector<uint16_t>& tokens, int32_t magic = 20240520, int32_t version = 1,
                        int32_t extra = 0) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = static_cast<int32_t>(tokens.size()) + extra;
  std::string bytes(1024 + 2 * tokens.size(), '\0');
  std::memcpy(bytes.data(), header.data(), 1024);
  std::memcpy(bytes.data() + 1024, tokens.data(), 2 * tokens.size());
  return bytes;
}

std::vector<uint16_t> counting(size_t count) {
  std::vector<uint16_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint16_t>(i * 7 % 1000);
  return tokens;
}

TEST(ShardWriter, WritesTheLayoutOfLlmC) {
  TestFolder folder;
  const std::vector<uint16_t> tokens = counting(25);
  ShardWriter writer(folder.path(), "train", 10);
  writer.write(std::span(tokens).first(3));
  writer.write(std::span(tokens).subspan(3));
  std::vector<ShardRecord> records = writer.finish();
  ASSERT_EQ(records.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<uint16_t> part(tokens.begin() + static_cast<std::ptrdiff_t>(10 * i),
                               tokens.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(25, 10 * i + 10)));
    EXPECT_EQ(records[i].file, "train-0000" + std::to_string(i) + ".bin");
    EXPECT_EQ(records[i].tokens, static_cast<int64_t>(part.size()));
    EXPECT_EQ(read_file(folder / records[i].file), shard_bytes(part));
  }
  EXPECT_TRUE(ShardWriter(folder.path(), "val", 10).finish().empty());
  for (int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 31})
    EXPECT_THROW(ShardWriter(folder.path(), "x", bad), InputError);
}

// Whatever a killed writer did after the state it saved, another goes on from that state to the same files.
TEST(ShardWriter, GoesOnFromWhereItWasSaved) {
  TestFolder folder;
  const std::vector<uint16_t> tokens = counting(47);
  const auto all = [&](const std::string& name) {
    std::string bytes;
    for (int i = 0; i < 5; ++i) bytes += read_file(folder / (name + "-0000" + std::to_string(i) + ".bin"));
    return bytes;
  };
  ShardWriter whole(folder.path(), "whole", 10);
  whole.write(tokens);
  const std::vector<ShardRecord> expected = whole.finish();
  for (size_t saved = 0; saved <= 47; ++saved) {
    for (size_t killed = saved; killed <= 47; killed += 9) {
      std::vector<ShardRecord> state;
      {
        ShardWriter first(folder.path(), "part", 10);
        first.write(std::span(tokens).first(saved));
        state = first.save();
        first.write(std::span(tokens).subspan(saved, killed - saved));
        if (killed % 2 == 0) first.finish();
      }
      ShardWriter second(folder.path(), "part", 10, state);
      second.write(std::span(tokens).subspan(saved));
      const std::vector<ShardRecord> records = second.finish();
      ASSERT_EQ(records.size(), expected.size());
      for (size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(records[i].tokens, expected[i].tokens);
        EXPECT_EQ(records[i].checksum, expected[i].checksum);
      }
      EXPECT_EQ(all("part"), all("whole")) << saved << " " << killed;
    }
  }
}

TEST(ShardWriter, DoesNotGoOnFromDamage) {
  TestFolder folder;
  ShardWriter writer(folder.path(), "train", 10);
  writer.write(counting(25));
  const std::vector<ShardRecord> state = writer.save();
  for (const ShardRecord& record : state) {
    const std::string good = read_file(folder / record.file);
    for (std::string bad :
         {good.substr(0, good.size() - 1), good.substr(0, 3), std::string(good).replace(1030, 1, "x")}) {
      write_file(folder / record.file, bad);
      EXPECT_THROW(ShardWriter(folder.path(), "train", 10, state), RunError) << record.file << " " << bad.size();
    }
    write_file(folder / record.file, good);
  }
  EXPECT_NO_THROW(ShardWriter(folder.path(), "train", 10, state));
}

TEST(TokenDataset, ReadsShardsOfLlmCAsOneSequence) {
  TestFolder folder;
  const std::vector<uint16_t> tokens = counting(100);
  auto part = [&](size_t begin, size_t end) {
    return shard_bytes(
        {tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.begin() + static_cast<std::ptrdiff_t>(end)});
  };
  folder.file("fineweb_train_000001.bin", part(0, 40));
  folder.file("fineweb_train_000002.bin", part(40, 40));
  folder.file("fineweb_train_000003.bin", part(40, 41));
  folder.file("fineweb_train_000004.bin", part(41, 100));
  folder.file("fineweb_val_000000.bin", part(0, 9));
  TokenDataset dataset = TokenDataset::open(folder.path(), Split::kTrain, 1000);
  ASSERT_EQ(dataset.tokens(), 100);
  EXPECT_EQ(dataset.vocabulary_size(), 1000);
  EXPECT_EQ(dataset.text_bytes(), 0);
  EXPECT_TRUE(dataset.tokenizer_path().empty());
  for (int64_t start = 0; start <= 100; ++start) {
    for (int64_t count = 0; start + count <= 100; ++count) {
      std::vector<int64_t> out(static_cast<size_t>(count) + 1, -7);
      dataset.copy(start, count, out.data());
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(out[static_cast<size_t>(i)], tokens[static_cast<size_t>(start + i)]);
      ASSERT_EQ(out.back(), -7);
    }
  }
  int64_t out[200];
  EXPECT_THROW(dataset.copy(-1, 2, out), InputError);
  EXPECT_THROW(dataset.copy(99, 2, out), InputError);
  EXPECT_THROW(dataset.copy(101, 0, out), InputError);
  EXPECT_THROW(dataset.copy(1, INT64_MAX, out), InputError);
  EXPECT_EQ(TokenDataset::open(folder.path(), Split::kValidation, 1000).tokens(), 9);
}

TEST(TokenDataset, IdentityChangesWithTheTokens) {
  TestFolder folder;
  std::vector<uint16_t> tokens = counting(100'000);
  auto hash = [&] {
    folder.file("train.bin", shard_bytes(tokens));
    return TokenDataset::open(folder.path(), Split::kTrain, 1000).data_hash();
  };
  const std::string before = hash();
  EXPECT_EQ(hash(), before);
  tokens[99'999] = 5;
  EXPECT_NE(hash(), before);
}

TEST(TokenDataset, DamagedShardsAreNamed) {
  TestFolder folder;
  const std::string good = shard_bytes(counting(50));
  auto error_of = [&](const std::string& bytes) {
    auto path = folder.file("my_train_0.bin", bytes);
    std::string error = input_error([&] { TokenDataset::open(folder.path(), Split::kTrain, 1000); });
    EXPECT_TRUE(contains(error, path.string())) << error;
    return error;
  };
  EXPECT_TRUE(contains(error_of(good.substr(0, good.size() - 1)), "truncated"));
  EXPECT_TRUE(contains(error_of(good.substr(0, 1024)), "truncated"));
  EXPECT_TRUE(contains(error_of(good + "x"), "truncated or damaged"));
  EXPECT_TRUE(contains(error_of(good.substr(0, 1023)), "not a token shard"));
  EXPECT_TRUE(contains(error_of(""), "not a token shard"));
  EXPECT_TRUE(contains(error_of(shard_bytes(counting(5), 20240801)), "20240801"));
  EXPECT_TRUE(contains(error_of(shard_bytes(counting(5), 20240520, 7)), "version 7"));
  EXPECT_TRUE(contains(error_of(shard_bytes(counting(5), 20240520, 1, -6)), "damaged"));
  folder.file("my_train_0.bin", shard_bytes({}));
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(folder.path(), Split::kTrain, 1000); }), "no tokens"));
}

TEST(TokenDataset, ATokenOutsideTheVocabularyIsNamedWithItsOffset) {
  TestFolder folder;
  folder.file("a_train.bin", shard_bytes({1, 2, 3}));
  auto path = folder.file("b_train.bin", shard_bytes({4, 500, 5}));
  TokenDataset dataset = TokenDataset::open(folder.path(), Split::kTrain, 500);
  int64_t out[6];
  dataset.copy(0, 4, out);
  std::string error = input_error([&] { dataset.copy(2, 4, out); });
  EXPECT_TRUE(contains(error, path.string()) && contains(error, "token 500 at offset 1026")) << error;
}

// A sparse file of the largest shard there can be, 4 GiB: no position is computed in 32 bits.
TEST(TokenDataset, ShardsMayHaveFourGigabytes) {
  TestFolder folder;
  constexpr int64_t kTokens = kMaximumShardTokens, kAt = kTokens - 3;
  auto path = folder.file("a_train.bin", shard_bytes({}));
  const auto put = [&](int64_t offset, auto value) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(8, static_cast<int32_t>(kTokens));
  put(kShardHeaderBytes + 2 * kAt, uint16_t{400});
  std::filesystem::resize_file(path, kShardHeaderBytes + 2 * kTokens);
  folder.file("b_train.bin", shard_bytes({1, 2, 499}));
  const TokenDataset dataset = TokenDataset::open(folder.path(), Split::kTrain, 500);
  EXPECT_EQ(dataset.tokens(), kTokens + 3);
  int64_t out[6];
  dataset.copy(kAt, 6, out);
  EXPECT_EQ(std::vector<int64_t>(out, out + 6), (std::vector<int64_t>{400, 0, 0, 1, 2, 499}));
  EXPECT_EQ(dataset.place_of(kAt).byte_offset, kShardHeaderBytes + 2 * kAt);
  put(kShardHeaderBytes + 2 * kAt, uint16_t{500});
  const std::string error = input_error([&] { dataset.copy(kAt - 1, 4, out); });
  EXPECT_TRUE(contains(error, path.string()) &&
              contains(error, "token 500 at offset " + std::to_string(kShardHeaderBytes + 2 * kAt)))
      << error;
}

TEST(TokenDataset, MissingFoldersAndVocabulariesAreNamed) {
  TestFolder folder;
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(folder / "none", Split::kTrain); }), "none"));
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(folder.path(), Split::kTrain); }), "*train*.bin"));
  folder.file("train.bin", shard_bytes({1}));
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(folder.path(), Split::kTrain); }), "vocabulary"));
}

}  // namespace
}  // namespace depthroute
