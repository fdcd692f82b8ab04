#include "io/config.h"

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "io/file.h"
#include "io/format.h"
#include "io/text.h"

namespace depthroute {
namespace {

constexpr uint64_t kMaxConfigBytes = 1 << 20;

// toml++'s tree as JSON, with the line of each key; dates are the only TOML values without a counterpart.
Json convert(const toml::node& node, const std::string& path, std::map<std::string, int64_t>& lines,
             const std::string& name) {
  lines[path] = static_cast<int64_t>(node.source().begin.line);
  if (const toml::table* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, child] : *table) {
      std::string inner(key.str());
      object[inner] = convert(child, path.empty() ? inner : path + "." + inner, lines, name);
    }
    return object;
  }
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& child : *array)
      list.push_back(convert(child, format_text("{}[{}]", path, list.size()), lines, name));
    return list;
  }
  if (auto value = node.as_integer()) return value->get();
  if (auto value = node.as_floating_point()) return value->get();
  if (auto value = node.as_boolean()) return value->get();
  if (auto value = node.as_string()) return value->get();
  fail_input("{}, line {}, key '{}': dates and times are not used here", name, lines[path], path);
}

toml::table parse_toml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    fail_input("{}, line {}: {}", name, error.source().begin.line, error.description());
  }
}

Json parse_override_value(const std::string& text) {
  std::map<std::string, int64_t> lines;
  try {
    toml::table table = toml::parse("value = " + text);
    if (table.size() == 1) return convert(table, "", lines, "--set")["value"];
  } catch (const toml::parse_error&) {
    // A bare word, such as a variant's name or a path.
  }
  return text;
}

void apply_override(Json& values, const std::string& text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    fail_input("--set '{}': expected key=value, such as train.tokens=1000000", text);
  Json* target = &values;
  std::stringstream keys(text.substr(0, equals));
  for (std::string key; std::getline(keys, key, '.');) {
    if (!target->is_object()) fail_input("--set '{}': '{}' is inside a key that is not a table", text, key);
    target = &(*target)[key];
    if (target->is_null() && !keys.eof()) *target = Json::object();
  }
  *target = parse_override_value(text.substr(equals + 1));
}

}  // namespace

Config Config::read(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  return parse(read_file(path, kMaxConfigBytes), path.string(), overrides);
}

Config Config::parse(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  auto lines = std::make_shared<Lines>();
  Json values = convert(parse_toml(text, name), "", *lines, name);
  for (const std::string& override_text : overrides) apply_override(values, override_text);
  return {std::move(values), name, "", lines};
}

std::string Config::where(const std::string& key) const {
  auto line = lines_->find(full_key(key));
  if (line == lines_->end()) return format_text("{}, key '{}'", name_, full_key(key));
  return format_text("{}, line {}, key '{}'", name_, line->second, full_key(key));
}

bool Config::known(const std::string& key) {
  asked_.push_back(key);
  return has(key);
}

const Json& Config::value(const std::string& key) {
  if (!known(key)) fail_input("{}: the key '{}' is missing", name_, full_key(key));
  return values_[key];
}

void Config::wrong_type(const std::string& key, const char* expected) const {
  fail_input("{}: {} is not {}", where(key), dump_json(values_[key]), expected);
}

int64_t Config::integer(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number_integer()) wrong_type(key, "an integer");
  return found.get<int64_t>();
}

double Config::number(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number()) wrong_type(key, "a number");
  return found.get<double>();
}

bool Config::boolean(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_boolean()) wrong_type(key, "true or false");
  return found.get<bool>();
}

std::string Config::string(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_string()) wrong_type(key, "a string");
  return found.get<std::string>();
}

std::vector<int64_t> Config::integers(const std::string& key) {
  const Json& found = value(key);
  bool good = found.is_array() &&
              std::all_of(found.begin(), found.end(), [](const Json& x) { return x.is_number_integer(); });
  if (!good) wrong_type(key, "a list of integers");
  return found.get<std::vector<int64_t>>();
}

std::vector<std::string> Config::strings(const std::string& key) {
  const Json& found = value(key);
  bool good =
      found.is_array() && std::all_of(found.begin(), found.end(), [](const Json& x) { return x.is_string(); });
  if (!good) wrong_type(key, "a list of strings");
  return found.get<std::vector<std::string>>();
}

int64_t Config::integer_between(const std::string& key, int64_t otherwise, int64_t least, int64_t most) {
  int64_t found = integer(key, otherwise);
  if (found < least || found > most) fail_input("{}: {} is not between {} and {}", where(key), found, least, most);
  return found;
}

double Config::number_between(const std::string& key, double otherwise, double least, double most) {
  double found = number(key, otherwise);
  if (!(found >= least && found <= most))
    fail_input("{}: {} is not between {} and {}", where(key), found, least, most);
  return found;
}

Config Config::table(const std::string& key) {
  if (known(key) && !values_[key].is_object()) wrong_type(key, "a table");
  return {has(key) ? values_[key] : Json::object(), name_, full_key(key), lines_};
}

std::vector<Config> Config::tables(const std::string& key) {
  std::vector<Config> result;
  if (!known(key)) return result;
  if (!values_[key].is_array()) wrong_type(key, "an array of tables");
  for (const Json& item : values_[key]) {
    std::string path = format_text("{}[{}]", full_key(key), result.size());
    if (!item.is_object()) wrong_type(key, "an array of tables");
    result.push_back({item, name_, path, lines_});
  }
  return result;
}

void Config::finish() const {
  for (const auto& [key, ignored] : values_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    std::string nearest = nearest_name(key, asked_);
    if (nearest.empty()) fail_input("{}: unknown key", where(key));
    fail_input("{}: unknown key; did you mean '{}'?", where(key), nearest);
  }
}

}  // namespace depthroute
