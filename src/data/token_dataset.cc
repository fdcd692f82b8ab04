#include "data/token_dataset.h"

#include <algorithm>

#include "data/manifest.h"
#include "io/checksum.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

std::vector<fs::path> shards_named(const fs::path& folder, Split split) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (name.ends_with(".bin") && name.find(name_of(split)) != std::string::npos) paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string ends_of(const TokenShard& shard) {
  constexpr size_t kPart = size_t{1} << 15;
  auto tokens = shard.tokens();
  auto first = std::as_bytes(tokens.first(std::min(kPart, tokens.size())));
  auto last = std::as_bytes(tokens.last(std::min(kPart, tokens.size())));
  std::string bytes(reinterpret_cast<const char*>(first.data()), first.size());
  bytes.append(reinterpret_cast<const char*>(last.data()), last.size());
  return bytes;
}

}  // namespace

TokenDataset TokenDataset::open(const fs::path& folder, Split split, int64_t vocabulary_size) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail_input("no such folder of token shards: '{}'; make it with prepare", folder.string());
  TokenDataset dataset;
  if (fs::exists(folder / kManifestFile, error)) {
    dataset.open_manifest(folder, split, vocabulary_size);
  } else {
    dataset.open_shards_alone(folder, split, vocabulary_size);
  }
  return dataset;
}

void TokenDataset::open_manifest(const fs::path& folder, Split split, int64_t vocabulary_size) {
  const Manifest manifest = read_manifest(folder);
  if (vocabulary_size != 0 && vocabulary_size != manifest.vocabulary_size) {
    fail_input("'{}' was made with a vocabulary of {}, but {} is asked for", folder.string(),
               manifest.vocabulary_size, vocabulary_size);
  }
  tokenizer_path_ = folder / manifest.tokenizer_file;
  if (file_checksum(tokenizer_path_) != manifest.tokenizer_hash) {
    fail_input("'{}' is not the tokenizer that the shards beside it were made with: prepare the data again",
               tokenizer_path_.string());
  }
  const SplitRecord& record = manifest[split];
  if (record.tokens == 0) fail_input("'{}' has no {} split: its fraction is 0", folder.string(), name_of(split));
  std::string identity = manifest.tokenizer_hash;
  for (const ShardRecord& shard : record.shards) {
    add_shard(folder / shard.file);
    int64_t found = static_cast<int64_t>(shards_.back().tokens().size());
    if (found != shard.tokens) {
      fail_input("'{}' holds {} tokens, the manifest says {}: prepare the data again",
                 shards_.back().path().string(), found, shard.tokens);
    }
    identity += format_text("\n{} {}", shard.tokens, shard.checksum);
  }
  vocabulary_size_ = manifest.vocabulary_size;
  text_bytes_ = record.text_bytes;
  documents_ = record.documents;
  data_hash_ = checksum(identity);
}

void TokenDataset::open_shards_alone(const fs::path& folder, Split split, int64_t vocabulary_size) {
  std::vector<fs::path> paths = shards_named(folder, split);
  if (paths.empty()) {
    fail_input("'{}' holds neither {} nor shards *{}*.bin: make it with prepare", folder.string(), kManifestFile,
               name_of(split));
  }
  if (vocabulary_size <= 0) {
    fail_input("'{}' has no {}, so the vocabulary size must be given", folder.string(), kManifestFile);
  }
  std::string identity;
  for (const fs::path& path : paths) {
    add_shard(path);
    identity +=
        format_text("{} {}\n", path.filename().string(), shards_.back().tokens().size()) + ends_of(shards_.back());
  }
  if (tokens_ == 0) fail_input("'{}': the {} shards hold no tokens", folder.string(), name_of(split));
  vocabulary_size_ = vocabulary_size;
  data_hash_ = checksum(identity);
}

void TokenDataset::add_shard(const fs::path& path) {
  shards_.emplace_back(path);
  begins_.push_back(tokens_);
  tokens_ += static_cast<int64_t>(shards_.back().tokens().size());
}

void TokenDataset::copy(int64_t start, int64_t count, int64_t* out) const {
  if (start < 0 || count < 0 || start > tokens_ || count > tokens_ - start) {
    fail_input("tokens {} to {} are outside the {} of the data", start, start + count, tokens_);
  }
  size_t shard = shard_of(start);
  while (count > 0) {
    int64_t offset = start - begins_[shard];
    int64_t part = std::min(count, static_cast<int64_t>(shards_[shard].tokens().size()) - offset);
    copy_from(shard, offset, part, out);
    start += part;
    count -= part;
    out += part;
    ++shard;
  }
}

// The last shard that begins at or before the position.
size_t TokenDataset::shard_of(int64_t position) const {
  return static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), position) - begins_.begin()) - 1;
}

TokenPlace TokenDataset::place_of(int64_t position) const {
  size_t shard = shard_of(position);
  return {shards_[shard].path(), kShardHeaderBytes + 2 * (position - begins_[shard])};
}

void TokenDataset::copy_from(size_t shard, int64_t offset, int64_t count, int64_t* out) const {
  const uint16_t* tokens = shards_[shard].tokens().data() + offset;
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] >= vocabulary_size_) {
      fail_input(
          "'{}': token {} at offset {} is outside the vocabulary of {}: the data were made with another tokenizer",
          shards_[shard].path().string(), tokens[i], kShardHeaderBytes + 2 * (offset + i), vocabulary_size_);
    }
    out[i] = tokens[i];
  }
}

}  // namespace depthroute
