// One split of a prepared folder as one sequence of tokens, mapped into memory: opening takes no time and no memory
// to speak of, whatever the size.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/split.h"
#include "data/token_shard.h"

namespace depthroute {

// Where a token lies on the disk.
struct TokenPlace {
  std::filesystem::path file;
  int64_t byte_offset = 0;
};

class TokenDataset {
 public:
  // A folder with a manifest, or one with shards of llm.c alone: those named *train*.bin, *val*.bin, *test*.bin, in
  // the order of their names. `vocabulary_size` is needed in the second case; in the first it must be 0 or the
  // manifest's.
  //
  // InputError where the folder or the split's shards are missing or empty, a shard is damaged, truncated or not as
  // the manifest says, or the tokenizer is not the one the shards were made with.
  static TokenDataset open(const std::filesystem::path& folder, Split split, int64_t vocabulary_size = 0);

  int64_t tokens() const { return tokens_; }
  // UTF-8 bytes and number of the documents; 0 where there is no manifest that says.
  int64_t text_bytes() const { return text_bytes_; }
  int64_t documents() const { return documents_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  // Identifies the sequence of tokens and the tokenizer, for the record of a run: of the manifest's checksums.
  // Without a manifest, of the shards' names, sizes and first and last 64 KiB.
  const std::string& data_hash() const { return data_hash_; }
  // Empty without a manifest.
  const std::filesystem::path& tokenizer_path() const { return tokenizer_path_; }

  // out[i] = token `start` + i, for i < count; it may cross shards. InputError where the range is not within the
  // sequence, or for a token outside the vocabulary (it names file and offset).
  void copy(int64_t start, int64_t count, int64_t* out) const;

  // Of the token at `position`, which must be within the sequence.
  TokenPlace place_of(int64_t position) const;

 private:
  void open_manifest(const std::filesystem::path& folder, Split split, int64_t vocabulary_size);
  void open_shards_alone(const std::filesystem::path& folder, Split split, int64_t vocabulary_size);
  void add_shard(const std::filesystem::path& path);
  size_t shard_of(int64_t position) const;
  void copy_from(size_t shard, int64_t offset, int64_t count, int64_t* out) const;

  std::vector<TokenShard> shards_;
  std::vector<int64_t> begins_;  // the position of each shard's first token
  int64_t tokens_ = 0, text_bytes_ = 0, documents_ = 0, vocabulary_size_ = 0;
  std::string data_hash_;
  std::filesystem::path tokenizer_path_;
};

}  // namespace depthroute
