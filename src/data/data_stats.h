// The figures of a prepared folder, as `data stats` and the summary of `prepare` show them.
#pragma once
#include <array>
#include <filesystem>
#include <string>

#include "data/manifest.h"
#include "io/json.h"

namespace depthroute {

struct DataStats {
  std::filesystem::path folder;
  Manifest manifest;
  std::array<std::string, 3>
      data_hashes;  // TokenDataset::data_hash() of each split, empty for a split without tokens
  bool verified = false;
};

// Opens every split, which checks headers, sizes and the tokenizer; `verify` compares the checksums of all bytes
// too. InputError where anything is not as the manifest says.
DataStats data_stats(const std::filesystem::path& folder, bool verify);

Json to_json(const DataStats& stats);
// A table of a few lines, without a final line feed.
std::string to_text(const DataStats& stats);

// The table of splits alone: documents, tokens, text bytes, bytes per token.
std::string split_table(const Manifest& manifest);

}  // namespace depthroute
