// manifest.json, beside the shards: what the folder holds, how it was made, and the hashes that give it an
// identity.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/split.h"
#include "data/token_shard.h"
#include "io/json.h"

namespace depthroute {

inline constexpr const char* kManifestFile = "manifest.json";

struct FileRecord {
  std::string file;
  int64_t bytes = 0;
  std::string checksum;
  bool operator==(const FileRecord&) const = default;
};

struct SplitRecord {
  int64_t documents = 0;
  int64_t tokens = 0;         // the separator after each document included
  int64_t text_bytes = 0;     // UTF-8 bytes of the documents, without separators
  std::string document_hash;  // of the set of documents, see DocumentSetHash
  int64_t duplicates = 0;     // documents left out as exact duplicates, not counted above
  // [i]: documents of at least 2^i and less than 2^(i+1) tokens, the separator included.
  std::vector<int64_t> token_lengths;
  std::vector<ShardRecord> shards;
  FileRecord ids;  // a line, a JSON string, for each document's identifier; without a name where there are none
};

struct Manifest {
  std::string tokenizer_file, tokenizer_hash;
  int64_t vocabulary_size = 0;
  int32_t separator = 0;
  SplitRule split_rule;
  std::array<SplitRecord, 3> splits;  // by Split
  Json recipe;                        // the options that shaped the content
  std::vector<FileRecord> inputs;

  const SplitRecord& operator[](Split split) const { return splits[static_cast<size_t>(split)]; }
  SplitRecord& operator[](Split split) { return splits[static_cast<size_t>(split)]; }
};

Json to_json(const Manifest& manifest);
// `where` stands in messages. InputError where it is no manifest, of another version, or contradicts itself.
Manifest manifest_from_json(const Json& value, const std::string& where);

// InputError where the file is missing, not a manifest, of another version, or contradicts itself.
Manifest read_manifest(const std::filesystem::path& folder);
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

// Reads every shard and the tokenizer again; InputError naming the first whose checksum is not the manifest's.
void verify_checksums(const std::filesystem::path& folder, const Manifest& manifest);

}  // namespace depthroute
