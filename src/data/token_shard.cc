#include "data/token_shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "io/checksum.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and mapped as they are");

TokenShard::TokenShard(const std::filesystem::path& path) : file_(path) {
  const std::string name = path.string();
  if (file_.size() < static_cast<uint64_t>(kShardHeaderBytes)) {
    fail_input("'{}' is not a token shard: {} bytes are less than its header of {}", name, file_.size(),
               kShardHeaderBytes);
  }
  std::array<int32_t, 3> header{};
  std::memcpy(header.data(), file_.data(), sizeof header);
  if (header[0] != kShardMagic) {
    fail_input("'{}' is not a token shard: it begins with {}, not {} (is it made by prepare or llm.c?)", name,
               header[0], kShardMagic);
  }
  if (header[1] != kShardVersion) {
    fail_input("'{}' is a token shard of version {}; only {} (uint16 tokens) is supported", name, header[1],
               kShardVersion);
  }
  int64_t count = header[2];
  if (count < 0 || file_.size() != static_cast<uint64_t>(kShardHeaderBytes + 2 * count)) {
    fail_input("'{}' is truncated or damaged: its header counts {} tokens, which makes {} bytes, but it has {}",
               name, count, kShardHeaderBytes + 2 * count, file_.size());
  }
  // The mapping begins at a page and the header is a multiple of two bytes long, so the tokens are aligned.
  tokens_ = {reinterpret_cast<const uint16_t*>(file_.data() + kShardHeaderBytes), static_cast<size_t>(count)};
}

ShardWriter::ShardWriter(std::filesystem::path folder, std::string name, int64_t tokens_per_shard)
    : folder_(std::move(folder)), name_(std::move(name)), limit_(tokens_per_shard) {
  if (limit_ < 1 || limit_ > kMaximumShardTokens) {
    fail_input("{} tokens per shard are not possible: between 1 and {}", limit_, kMaximumShardTokens);
  }
}

void ShardWriter::begin_shard() {
  records_.push_back({format_text("{}-{:05}.bin", name_, records_.size()), 0, ""});
  file_ = std::make_unique<AtomicFile>(folder_ / records_.back().file);
  std::array<int32_t, kShardHeaderInts> header{};
  file_->write(header.data(), sizeof header);
}

void ShardWriter::end_shard() {
  ShardRecord& record = records_.back();
  std::array<int32_t, 3> header = {kShardMagic, kShardVersion, static_cast<int32_t>(record.tokens)};
  file_->write_at(0, header.data(), sizeof header);
  file_->commit();
  file_.reset();
  record.checksum = file_checksum(folder_ / record.file);
}

void ShardWriter::write(std::span<const uint16_t> tokens) {
  while (!tokens.empty()) {
    if (!file_) begin_shard();
    int64_t room = limit_ - records_.back().tokens;
    auto part = tokens.first(std::min(tokens.size(), static_cast<size_t>(room)));
    file_->write(part.data(), part.size_bytes());
    records_.back().tokens += static_cast<int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (records_.back().tokens == limit_) end_shard();
  }
}

std::vector<ShardRecord> ShardWriter::finish() {
  if (file_) end_shard();
  return std::move(records_);
}

}  // namespace depthroute
