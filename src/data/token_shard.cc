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

namespace {

using Header = std::array<int32_t, kShardHeaderInts>;

void write_header(GrowingFile& file, const Header& header) {
  if (file.size() == 0) {
    file.write(header.data(), sizeof header);
  } else {
    file.write_at(0, header.data(), sizeof header);
  }
}

}  // namespace

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

ShardWriter::ShardWriter(std::filesystem::path folder, std::string name, int64_t tokens_per_shard,
                         std::vector<ShardRecord> records)
    : folder_(std::move(folder)), name_(std::move(name)), limit_(tokens_per_shard), records_(std::move(records)) {
  if (limit_ < 1 || limit_ > kMaximumShardTokens) {
    fail_input("{} tokens per shard are not possible: between 1 and {}", limit_, kMaximumShardTokens);
  }
  for (const ShardRecord& record : records_) {
    const auto path = folder_ / record.file;
    auto file = std::make_unique<GrowingFile>(path, kShardHeaderBytes + 2 * record.tokens);
    // The process that was stopped may have gone on and completed its header.
    const bool complete = record.tokens == limit_;
    if (!complete) write_header(*file, {});
    if (file_checksum(path) != record.checksum) fail_run("'{}' has changed since it was written", path.string());
    if (!complete) file_ = std::move(file);
  }
}

void ShardWriter::begin_shard() {
  records_.push_back({format_text("{}-{:05}.bin", name_, records_.size()), 0, ""});
  file_ = std::make_unique<GrowingFile>(last_path(), 0);
  write_header(*file_, {});
}

void ShardWriter::end_shard() {
  ShardRecord& record = records_.back();
  write_header(*file_, {kShardMagic, kShardVersion, static_cast<int32_t>(record.tokens)});
  file_->sync();
  file_.reset();
  record.checksum = file_checksum(last_path());
}

const std::vector<ShardRecord>& ShardWriter::save() {
  if (file_) {
    file_->sync();
    records_.back().checksum = file_checksum(last_path());
  }
  return records_;
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

const std::vector<ShardRecord>& ShardWriter::finish() {
  if (file_) end_shard();
  return records_;
}

}  // namespace depthroute
