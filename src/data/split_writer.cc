#include "data/split_writer.h"

#include <bit>

#include "io/checksum.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace {

void add_lengths(std::vector<int64_t>& sum, const std::vector<int64_t>& lengths) {
  if (sum.size() < lengths.size()) sum.resize(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) sum[i] += lengths[i];
}

}  // namespace

void EncodedDocuments::add(const std::vector<int32_t>& document) {
  tokens.insert(tokens.end(), document.begin(), document.end());
  const auto bin = static_cast<size_t>(std::bit_width(document.size())) - 1;
  if (token_lengths.size() <= bin) token_lengths.resize(bin + 1);
  ++token_lengths[bin];
}

SplitWriter::SplitWriter(const std::filesystem::path& folder, Split split, int64_t tokens_per_shard, bool with_ids,
                         const SplitRecord& record)
    : folder_(folder),
      shards_(folder, std::string(name_of(split)), tokens_per_shard, record.shards),
      token_lengths_(record.token_lengths) {
  if (!with_ids) return;
  ids_name_ = format_text("{}-ids.jsonl", name_of(split));
  ids_ = std::make_unique<GrowingFile>(folder / ids_name_, record.ids.bytes);
  if (record.ids.bytes > 0 && file_checksum(folder / ids_name_) != record.ids.checksum)
    fail_run("'{}' has changed since it was written", (folder / ids_name_).string());
}

void SplitWriter::write(const EncodedDocuments& documents) {
  shards_.write(documents.tokens);
  add_lengths(token_lengths_, documents.token_lengths);
  if (ids_) ids_->write(documents.ids.data(), documents.ids.size());
}

void SplitWriter::save(SplitRecord& record) {
  record.shards = shards_.save();
  record.tokens = 0;
  for (const ShardRecord& shard : record.shards) record.tokens += shard.tokens;
  record.token_lengths = token_lengths_;
  if (!ids_) return;
  ids_->sync();
  record.ids = {ids_name_, static_cast<int64_t>(ids_->size()), file_checksum(folder_ / ids_name_)};
}

void SplitWriter::finish(SplitRecord& record) {
  shards_.finish();
  save(record);
}

}  // namespace depthroute
