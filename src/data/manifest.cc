#include "data/manifest.h"

#include "io/checksum.h"
#include "io/error.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFormat = "depthroute tokens";
constexpr int64_t kVersion = 1;

// A manifest may come from elsewhere: a name in it must not lead out of its folder.
std::string file_name(const Json& value, const std::string& key, const std::string& where) {
  std::string name = json_get<std::string>(value, key, where);
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string::npos) {
    fail_input("{}: '{}' is not the name of a file in the folder", where, name);
  }
  return name;
}

int64_t count(const Json& value, const std::string& key, const std::string& where) {
  if (value.is_object() && value.contains(key) && !value.at(key).is_number_integer()) {
    fail_input("{}: key '{}' is not a whole number: {}", where, key, dump_json(value.at(key)));
  }
  int64_t number = json_get<int64_t>(value, key, where);
  if (number < 0) fail_input("{}: key '{}' is negative: {}", where, key, number);
  return number;
}

Json file_to_json(const FileRecord& record) {
  return json_object({{"file", record.file}, {"bytes", record.bytes}, {"checksum", record.checksum}});
}

FileRecord file_from_json(const Json& value, std::string name, const std::string& where) {
  return {std::move(name), count(value, "bytes", where), json_get<std::string>(value, "checksum", where)};
}

Json split_to_json(const SplitRecord& split) {
  Json shards = Json::array();
  for (const ShardRecord& shard : split.shards) {
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"checksum", shard.checksum}});
  }
  Json value = json_object({{"documents", split.documents},
                            {"tokens", split.tokens},
                            {"text_bytes", split.text_bytes},
                            {"document_hash", split.document_hash},
                            {"duplicates", split.duplicates},
                            {"token_lengths", split.token_lengths},
                            {"shards", shards}});
  if (!split.ids.file.empty()) value["ids"] = file_to_json(split.ids);
  return value;
}

SplitRecord split_from_json(const Json& value, const std::string& where) {
  SplitRecord split;
  split.documents = count(value, "documents", where);
  split.tokens = count(value, "tokens", where);
  split.text_bytes = count(value, "text_bytes", where);
  split.document_hash = json_get<std::string>(value, "document_hash", where);
  // Folders made by earlier versions lack these.
  if (value.contains("duplicates")) split.duplicates = count(value, "duplicates", where);
  if (value.contains("token_lengths"))
    split.token_lengths = json_get<std::vector<int64_t>>(value, "token_lengths", where);
  if (split.token_lengths.size() > 40) fail_input("{}: too many token_lengths", where);
  if (value.contains("ids"))
    split.ids = file_from_json(value.at("ids"), file_name(value.at("ids"), "file", where), where);
  int64_t sum = 0;
  for (const Json& shard : json_get<std::vector<Json>>(value, "shards", where)) {
    split.shards.push_back({file_name(shard, "file", where), count(shard, "tokens", where),
                            json_get<std::string>(shard, "checksum", where)});
    if (split.shards.back().tokens > kMaximumShardTokens) fail_input("{}: a shard has too many tokens", where);
    sum += split.shards.back().tokens;
  }
  if (sum != split.tokens) fail_input("{}: the shards' tokens add up to {}, not {}", where, sum, split.tokens);
  return split;
}

void require_checksum(const fs::path& path, const std::string& expected) {
  std::string found = file_checksum(path);
  if (found == expected) return;
  fail_input("'{}' has changed: its checksum is {}, the manifest says {}; prepare the data again", path.string(),
             found, expected);
}

}  // namespace

Json to_json(const Manifest& manifest) {
  Json splits, fractions;
  for (Split split : kSplits) {
    std::string name(name_of(split));
    splits[name] = split_to_json(manifest[split]);
    fractions[name] = manifest.split_rule.fractions[static_cast<size_t>(split)];
  }
  Json inputs = Json::array();
  for (const FileRecord& input : manifest.inputs) inputs.push_back(file_to_json(input));
  return {{"format", kFormat},
          {"version", kVersion},
          {"tokenizer",
           {{"file", manifest.tokenizer_file},
            {"checksum", manifest.tokenizer_hash},
            {"vocabulary_size", manifest.vocabulary_size},
            {"separator", manifest.separator}}},
          {"split",
           {{"rule", "XXH3-64 of the document's text over 2^64: test, then val, then train"},
            {"seed", manifest.split_rule.seed},
            {"fractions", fractions}}},
          {"splits", splits},
          {"recipe", manifest.recipe},
          {"inputs", inputs}};
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  write_json(folder / kManifestFile, to_json(manifest));
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  return manifest_from_json(read_json(path), path.string());
}

Manifest manifest_from_json(const Json& value, const std::string& where) {
  if (!value.is_object() || value.value("format", Json()) != kFormat)
    fail_input("{}: not a manifest of token shards", where);
  if (count(value, "version", where) != kVersion) {
    fail_input("{}: version {} is not supported, only {}", where, count(value, "version", where), kVersion);
  }
  Manifest manifest;
  const Json tokenizer = json_get<Json>(value, "tokenizer", where), rule = json_get<Json>(value, "split", where);
  manifest.tokenizer_file = file_name(tokenizer, "file", where);
  manifest.tokenizer_hash = json_get<std::string>(tokenizer, "checksum", where);
  manifest.vocabulary_size = count(tokenizer, "vocabulary_size", where);
  manifest.separator = static_cast<int32_t>(count(tokenizer, "separator", where));
  manifest.split_rule.seed = json_get<uint64_t>(rule, "seed", where);
  const Json fractions = json_get<Json>(rule, "fractions", where), splits = json_get<Json>(value, "splits", where);
  for (Split split : kSplits) {
    const std::string name(name_of(split));
    manifest.split_rule.fractions[static_cast<size_t>(split)] = json_get<double>(fractions, name, where);
    manifest[split] = split_from_json(json_get<Json>(splits, name, where), where);
  }
  manifest.recipe = json_get<Json>(value, "recipe", where);
  for (const Json& input : json_get<std::vector<Json>>(value, "inputs", where)) {
    manifest.inputs.push_back(file_from_json(input, json_get<std::string>(input, "file", where), where));
  }
  return manifest;
}

void verify_checksums(const fs::path& folder, const Manifest& manifest) {
  require_checksum(folder / manifest.tokenizer_file, manifest.tokenizer_hash);
  for (const SplitRecord& split : manifest.splits) {
    for (const ShardRecord& shard : split.shards) require_checksum(folder / shard.file, shard.checksum);
    if (!split.ids.file.empty()) require_checksum(folder / split.ids.file, split.ids.checksum);
  }
}

}  // namespace depthroute
