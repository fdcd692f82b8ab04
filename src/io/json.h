// JSON files: nlohmann's library, with errors that name the file and the key.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

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

// Is the value a whole number that a T can hold? The library converts any number into any other without a word.
template <typename T>
bool json_holds(const Json& value) {
  return value.is_number_unsigned()  ? std::in_range<T>(value.get<uint64_t>())
         : value.is_number_integer() ? std::in_range<T>(value.get<int64_t>())
                                     : false;
}

template <typename T>
struct JsonType {
  static bool matches(const Json& value) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return json_holds<T>(value);
    if constexpr (std::is_floating_point_v<T>) return value.is_number();
    return true;  // get() sees the rest
  }
};
template <typename T>
struct JsonType<std::vector<T>> {
  static bool matches(const Json& value) {
    return value.is_array() && std::all_of(value.begin(), value.end(), JsonType<T>::matches);
  }
};

// value[key] as T; InputError naming `where` and the key if it is missing, of another type, or a number that T cannot hold.
template <typename T>
T json_get(const Json& value, const std::string& key, const std::string& where) {
  if (!value.is_object() || !value.contains(key)) fail_input("{}: key '{}' is missing", where, key);
  try {
    if (JsonType<T>::matches(value.at(key))) return value.at(key).get<T>();
  } catch (const nlohmann::json::exception&) {
  }
  fail_input("{}: key '{}' has the wrong type: {}", where, key, dump_json(value.at(key)));
}

}  // namespace depthroute

// Compiled once, in json.cc.
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
