#include "data/data_show.h"

#include <algorithm>
#include <vector>

#include "data/line_reader.h"
#include "data/manifest.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kBlockTokens = 1 << 16;

// The position of the first token of the document.
int64_t begin_of(const TokenDataset& dataset, int32_t separator, int64_t index) {
  std::vector<int64_t> block(kBlockTokens);
  int64_t left = index, position = 0;
  while (left > 0 && position < dataset.tokens()) {
    const int64_t count = std::min(kBlockTokens, dataset.tokens() - position);
    dataset.copy(position, count, block.data());
    for (int64_t i = 0; i < count; ++i) {
      if (block[static_cast<size_t>(i)] == separator && --left == 0) return position + i + 1;
    }
    position += count;
  }
  return position;
}

std::vector<int32_t> tokens_from(const TokenDataset& dataset, int32_t separator, int64_t begin) {
  std::vector<int32_t> tokens;
  for (int64_t position = begin; position < dataset.tokens(); ++position) {
    int64_t token = 0;
    dataset.copy(position, 1, &token);
    tokens.push_back(static_cast<int32_t>(token));
    if (token == separator) break;
  }
  return tokens;
}

std::string id_of(const fs::path& path, int64_t index) {
  LineReader lines(path);
  std::string line;
  for (int64_t i = 0; i <= index; ++i) {
    if (!lines.next(line)) fail_input("'{}' has only {} lines: prepare the data again", path.string(), i);
  }
  const Json id = Json::parse(line, nullptr, false);
  if (!id.is_string()) fail_input("{}: a JSON string is expected", lines.where());
  return id.get<std::string>();
}

}  // namespace

ShownDocument show_document(const fs::path& folder, Split split, int64_t index) {
  const Manifest manifest = read_manifest(folder);
  const SplitRecord& record = manifest[split];
  if (index < 0 || index >= record.documents) {
    fail_input("the {} split of '{}' has {} documents, numbered from 0: there is none with the number {}",
               name_of(split), folder.string(), record.documents, index);
  }
  const TokenDataset dataset = TokenDataset::open(folder, split);
  const int64_t begin = begin_of(dataset, manifest.separator, index);
  if (begin >= dataset.tokens()) {
    fail_input("the {} shards of '{}' hold fewer documents than the manifest says: prepare the data again",
               name_of(split), folder.string());
  }
  const std::vector<int32_t> tokens = tokens_from(dataset, manifest.separator, begin);
  const TokenPlace place = dataset.place_of(begin);
  ShownDocument document{split, index, static_cast<int64_t>(tokens.size()), "", "", ""};
  document.where = format_text("{}:{}", place.file.filename().string(), place.byte_offset);
  document.text = Tokenizer::load(dataset.tokenizer_path()).decode(tokens);
  if (!record.ids.file.empty()) document.id = id_of(folder / record.ids.file, index);
  return document;
}

Json to_json(const ShownDocument& document) {
  Json value = json_object({{"split", name_of(document.split)},
                            {"index", document.index},
                            {"tokens", document.tokens},
                            {"bytes", document.text.size()},
                            {"where", document.where}});
  if (!document.id.empty()) value["id"] = document.id;
  value["text"] = document.text;
  return value;
}

std::string to_text(const ShownDocument& document) {
  return format_text("{} {}: {} bytes, {} tokens, at {}{}{}\n\n{}", name_of(document.split), document.index,
                     document.text.size(), document.tokens, document.where, document.id.empty() ? "" : ", id ",
                     document.id, document.text);
}

}  // namespace depthroute
