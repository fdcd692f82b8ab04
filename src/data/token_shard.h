// Token shards in the layout of llm.c: a header of 256 int32 (magic 20240520, version 1, number of tokens, zeros),
// then the tokens as uint16, all little-endian. What llm.c and modded-nanogpt write (FineWeb, FineWeb-Edu) reads as
// it is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace depthroute {

inline constexpr int32_t kShardMagic = 20240520, kShardVersion = 1;
inline constexpr int64_t kShardHeaderInts = 256, kShardHeaderBytes = kShardHeaderInts * 4;
// The count is an int32.
inline constexpr int64_t kMaximumShardTokens = (int64_t{1} << 31) - 1;

// A shard mapped into memory. InputError naming the file where its header is not that of a shard or its size is not
// what its count says.
class TokenShard {
 public:
  explicit TokenShard(const std::filesystem::path& path);
  std::span<const uint16_t> tokens() const { return tokens_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::span<const uint16_t> tokens_;
};

struct ShardRecord {
  std::string file;
  int64_t tokens = 0;
  std::string checksum;
};

// Writes a sequence of tokens as NAME-00000.bin, NAME-00001.bin, ... of at most `tokens_per_shard` tokens, into a
// folder that is not in use yet: the shard that is being written is not whole.
class ShardWriter {
 public:
  // `records`: of an earlier writer's save(), to go on behind them. RunError where the files are not as they say.
  ShardWriter(std::filesystem::path folder, std::string name, int64_t tokens_per_shard,
              std::vector<ShardRecord> records = {});
  void write(std::span<const uint16_t> tokens);
  // Flushes all to the disk. The records of what is written; the last shard may be incomplete.
  const std::vector<ShardRecord>& save();
  // Completes the last shard; the records of all, in order.
  const std::vector<ShardRecord>& finish();

 private:
  void begin_shard();
  void end_shard();
  std::filesystem::path last_path() const { return folder_ / records_.back().file; }

  std::filesystem::path folder_;
  std::string name_;
  int64_t limit_;
  std::unique_ptr<GrowingFile> file_;  // of the last record, if that is incomplete
  std::vector<ShardRecord> records_;
};

}  // namespace depthroute
