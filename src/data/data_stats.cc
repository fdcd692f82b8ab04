#include "data/data_stats.h"

#include <algorithm>

#include "data/token_dataset.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace {

double ratio(int64_t a, int64_t b) {
  return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0;
}

// Documents by their number of tokens, in powers of two; nothing where the manifest does not say.
std::string length_table(const Manifest& manifest) {
  size_t bins = 0;
  for (const SplitRecord& record : manifest.splits) bins = std::max(bins, record.token_lengths.size());
  if (bins == 0) return "";
  std::string table = format_text("\n{:<16}{:>12}{:>12}{:>12}", "tokens", name_of(Split::kTrain),
                                  name_of(Split::kValidation), name_of(Split::kTest));
  for (size_t bin = 0; bin < bins; ++bin) {
    const int64_t least = int64_t{1} << bin;
    table += format_text("\n{:<16}", bin == 0 ? "1" : format_text("{}-{}", least, 2 * least - 1));
    for (const SplitRecord& record : manifest.splits)
      table += format_text("{:>12}", bin < record.token_lengths.size() ? record.token_lengths[bin] : 0);
  }
  return table;
}

}  // namespace

DataStats data_stats(const std::filesystem::path& folder, bool verify) {
  DataStats stats{folder, read_manifest(folder), {}, verify};
  for (Split split : kSplits) {
    if (stats.manifest[split].tokens == 0) continue;
    stats.data_hashes[static_cast<size_t>(split)] = TokenDataset::open(folder, split).data_hash();
  }
  if (verify) verify_checksums(folder, stats.manifest);
  return stats;
}

Json to_json(const DataStats& stats) {
  const Manifest& manifest = stats.manifest;
  Json splits;
  for (Split split : kSplits) {
    const SplitRecord& record = manifest[split];
    splits[std::string(name_of(split))] = {{"documents", record.documents},
                                           {"tokens", record.tokens},
                                           {"text_bytes", record.text_bytes},
                                           {"tokens_per_byte", ratio(record.tokens, record.text_bytes)},
                                           {"bytes_per_token", ratio(record.text_bytes, record.tokens)},
                                           {"shards", record.shards.size()},
                                           {"duplicates", record.duplicates},
                                           {"token_lengths", record.token_lengths},
                                           {"document_hash", record.document_hash},
                                           {"data_hash", stats.data_hashes[static_cast<size_t>(split)]}};
  }
  return {{"folder", stats.folder.string()},
          {"vocabulary_size", manifest.vocabulary_size},
          {"tokenizer_hash", manifest.tokenizer_hash},
          {"verified", stats.verified},
          {"splits", splits}};
}

std::string split_table(const Manifest& manifest) {
  std::string table =
      format_text("{:<6}{:>12}{:>16}{:>16}{:>13}", "split", "documents", "tokens", "text bytes", "bytes/token");
  for (Split split : kSplits) {
    const SplitRecord& record = manifest[split];
    table += format_text("\n{:<6}{:>12}{:>16}{:>16}{:>13.3f}", name_of(split), record.documents, record.tokens,
                         record.text_bytes, ratio(record.text_bytes, record.tokens));
  }
  int64_t duplicates = 0;
  for (const SplitRecord& record : manifest.splits) duplicates += record.duplicates;
  if (duplicates > 0) table += format_text("\n{} exact duplicates left out", duplicates);
  return table;
}

std::string to_text(const DataStats& stats) {
  std::string text =
      split_table(stats.manifest) +
      format_text("\nvocabulary {}, tokenizer {}", stats.manifest.vocabulary_size, stats.manifest.tokenizer_hash);
  for (Split split : kSplits) {
    const std::string& hash = stats.data_hashes[static_cast<size_t>(split)];
    if (!hash.empty()) text += format_text("\n{:<6}data {}", name_of(split), hash);
  }
  return text + length_table(stats.manifest) + (stats.verified ? "\nall checksums are right" : "");
}

}  // namespace depthroute
