// Where a run or a study stands: what is done, running, left by a process that was killed, failed and why.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "study/results.h"

namespace depthroute {

enum class Activity {
  kWaiting,  // not started
  kRunning,  // a process holds the run's lock
  kStale,    // started, without an end, and no process works on it: killed, or on another machine
  kStopped,  // on request; the same command continues
  kFailed,   // a loss that was not finite, a damaged file, a run of another protocol
  kFinished,
};

struct RunStatus {
  std::string name;
  Activity activity = Activity::kWaiting;
  int64_t tokens = 0, total_tokens = 0;
  double loss = kNotANumber;               // of the last logged step
  double tokens_per_second = kNotANumber;  // since the start
  std::string message{};                   // why, where it is not plain

  double seconds_left() const;  // NaN where the rate is not known
};

struct Status {
  std::string study;  // its name; empty for a run
  std::vector<RunStatus> runs;
};

// Of a study's or a run's folder, also while it is worked on: nothing is written. InputError where it is neither.
Status read_status(const std::filesystem::path& folder);

Json status_to_json(const Status& status);
std::string status_text(const Status& status);

}  // namespace depthroute
