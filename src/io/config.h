// Configs: TOML files, with `--set key=value` on top. A reader takes the keys it knows; what is left over is an
// error that names the nearest known key. Messages name the file, the line and the key.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/json.h"

namespace depthroute {

class Config {
 public:
  // `overrides` are "table.key=value", the value written as in TOML; a bare word is a string. InputError for
  // anything ill-formed.
  static Config read(const std::filesystem::path& path, const std::vector<std::string>& overrides = {});
  static Config parse(const std::string& text, const std::string& name,
                      const std::vector<std::string>& overrides = {});

  bool has(const std::string& key) const { return values_.contains(key); }

  // The value of a key; InputError where it is missing or has another type. Integers are accepted where a number is
  // expected.
  int64_t integer(const std::string& key);
  double number(const std::string& key);
  bool boolean(const std::string& key);
  std::string string(const std::string& key);
  std::vector<int64_t> integers(const std::string& key);
  std::vector<std::string> strings(const std::string& key);
  // The value of a key, or the default where it is missing.
  int64_t integer(const std::string& key, int64_t otherwise) { return known(key) ? integer(key) : otherwise; }
  double number(const std::string& key, double otherwise) { return known(key) ? number(key) : otherwise; }
  bool boolean(const std::string& key, bool otherwise) { return known(key) ? boolean(key) : otherwise; }
  std::string string(const std::string& key, const std::string& otherwise) {
    return known(key) ? string(key) : otherwise;
  }
  // Checked: least <= value <= most.
  int64_t integer_between(const std::string& key, int64_t otherwise, int64_t least, int64_t most);
  double number_between(const std::string& key, double otherwise, double least, double most);

  // A table, empty where it is missing, and an array of tables.
  Config table(const std::string& key);
  std::vector<Config> tables(const std::string& key);

  // InputError for the first key that nobody asked for.
  void finish() const;
  // "file.toml, line 12, key 'train.tokens'": where a message about a value points.
  std::string where(const std::string& key) const;

 private:
  using Lines = std::map<std::string, int64_t>;

  Config(Json values, std::string name, std::string path, std::shared_ptr<const Lines> lines)
      : values_(std::move(values)), name_(std::move(name)), path_(std::move(path)), lines_(std::move(lines)) {}

  bool known(const std::string& key);
  const Json& value(const std::string& key);
  std::string full_key(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void wrong_type(const std::string& key, const char* expected) const;

  Json values_;
  std::string name_, path_;
  std::shared_ptr<const Lines> lines_;
  std::vector<std::string> asked_;
};

}  // namespace depthroute
