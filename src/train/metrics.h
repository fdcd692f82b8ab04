// metrics.jsonl: one event a line. What a run measures is the same at every run, times aside; see
// docs/file_formats.md for the events.
#pragma once
#include <filesystem>
#include <string>

#include "io/json.h"

namespace depthroute {

class Metrics {
 public:
  explicit Metrics(std::filesystem::path path) : path_(std::move(path)) {}

  void add(const Json& event) const;
  // Flushes what has been added to the disk.
  void sync() const;
  // Removes what was written after `step` (by a process that was killed) and how earlier processes ended.
  void rewind(int64_t step) const;
  // True if the last event is the end of a finished run of `tokens` tokens or more.
  bool finished(int64_t tokens = 0) const;

 private:
  std::filesystem::path path_;
};

}  // namespace depthroute
