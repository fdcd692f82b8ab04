// JSON files: nlohmann's library, with errors that name the file and the key.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "io/error.h"

namespace depthroute {

// Keys keep the order in which they were written, so that files read well and have the same bytes each time.
using Json = nlohmann::ordered_json;

// An object from its members: json_object({{"name", name}, {"count", 3}}). The library's own initializer lists do
// the same, but compile a constructor for every length of a literal, which made up most of this project's build time.
struct JsonMember {
  const char* key;
  Json value;
};
Json json_object(std::initializer_list<JsonMember> members);

// As text, on one line (indent -1) or indented. Names of files may be any bytes; what is not UTF-8 becomes U+FFFD.
std::string dump_json(const Json& value, int indent = -1);

// InputError where the file is missing or is not JSON.
Json read_json(const std::filesystem::path& path);
// Pretty-printed, with a final newline, written as a whole.
void write_json(const std::filesystem::path& path, const Json& value);
// One object a line; an incomplete last line (a process killed while writing) is left out, any other bad line is an
// InputError.
std::vector<Json> read_json_lines(const std::filesystem::path& path);

// value[key] as T; InputError naming `where` and the key if it is missing or of another type.
template <typename T>
T json_get(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object() || !value.contains(key)) fail_input("{}: key '{}' is missing", where, key);
  try {
    return value.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
    fail_input("{}: key '{}' has the wrong type: {}", where, key, dump_json(value.at(key)));
  }
}

}  // namespace depthroute

// Compiled once, in json.cc.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
