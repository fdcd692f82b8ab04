// One document of a prepared folder, as `data show` prints it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/split.h"
#include "io/json.h"

namespace depthroute {

struct ShownDocument {
  Split split = Split::kTrain;
  int64_t index = 0, tokens = 0;  // the separator included
  std::string where;              // "train-00000.bin:1024", file and byte of its first token
  std::string id;                 // where prepare kept identifiers
  std::string text;
};

// The document of a split with the number `index`, from 0. It reads the tokens before it. InputError where the folder
// is not sound or has no such document.
ShownDocument show_document(const std::filesystem::path& folder, Split split, int64_t index);

Json to_json(const ShownDocument& document);
// A line about it, an empty one, its text.
std::string to_text(const ShownDocument& document);

}  // namespace depthroute
