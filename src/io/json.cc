#include "io/json.h"

#include "io/file.h"

namespace depthroute {

Json json_object(std::initializer_list<JsonMember> members) {
  Json object = Json::object();
  for (const JsonMember& member : members) object[member.key] = member.value;
  return object;
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json read_json(const std::filesystem::path& path) {
  std::string text = read_file(path);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail_input("'{}' is not JSON: {}", path.string(), error.what());
  }
}

void write_json(const std::filesystem::path& path, const Json& value) {
  write_file(path, dump_json(value, 2) + "\n");
}

std::vector<Json> read_json_lines(const std::filesystem::path& path) {
  std::string text = read_file(path);
  std::vector<Json> lines;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    try {
      lines.push_back(
          Json::parse(text.begin() + static_cast<int64_t>(begin), text.begin() + static_cast<int64_t>(end)));
    } catch (const nlohmann::json::exception&) {
      fail_input("'{}', line {}: not JSON", path.string(), number);
    }
    begin = end + 1;
  }
  return lines;
}

}  // namespace depthroute

template class nlohmann::basic_json<nlohmann::ordered_map>;
