#include "train/metrics.h"

#include "io/file.h"

namespace depthroute {

void Metrics::add(const Json& event) const {
  append_line(path_, dump_json(event));
}

void Metrics::sync() const {
  if (std::filesystem::exists(path_)) sync_file(path_);
}

void Metrics::rewind(int64_t step) const {
  if (!std::filesystem::exists(path_)) return;
  std::string kept;
  for (const Json& event : read_json_lines(path_)) {
    auto kind = json_get<std::string>(event, "event", path_.string());
    if (kind != "end" && kind != "memory" && json_get<int64_t>(event, "step", path_.string()) <= step)
      kept += dump_json(event) + "\n";
  }
  write_file(path_, kept);
}

bool Metrics::finished(int64_t tokens) const {
  if (!std::filesystem::exists(path_)) return false;
  std::vector<Json> events = read_json_lines(path_);
  return !events.empty() && json_get<std::string>(events.back(), "event", path_.string()) == "end" &&
         json_get<std::string>(events.back(), "reason", path_.string()) == "finished" &&
         json_get<int64_t>(events.back(), "tokens", path_.string()) >= tokens;
}

}  // namespace depthroute
