#include "study/status.h"

#include <algorithm>
#include <cmath>

#include "io/file.h"
#include "io/format.h"
#include "io/progress.h"
#include "io/text.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

const char* activity_name(Activity activity) {
  switch (activity) {
    case Activity::kWaiting:
      return "waiting";
    case Activity::kRunning:
      return "running";
    case Activity::kStale:
      return "stale";
    case Activity::kStopped:
      return "stopped";
    case Activity::kFailed:
      return "failed";
    default:
      return "finished";
  }
}

Activity activity_of(const RunResult& run, const fs::path& folder) {
  // A process that continues a run has not taken back yet how the last one ended.
  if (is_locked(folder)) return Activity::kRunning;
  switch (run.state) {
    case RunState::kMissing:
      return Activity::kWaiting;
    case RunState::kRunning:
      return Activity::kStale;
    case RunState::kStopped:
      return Activity::kStopped;
    case RunState::kFinished:
      return Activity::kFinished;
    default:
      return Activity::kFailed;
  }
}

RunStatus status_of(const RunResult& run, const fs::path& folder, int64_t total_tokens) {
  RunStatus status{folder.filename().string(), activity_of(run, folder), 0, total_tokens};
  if (!run.validation.empty()) status.tokens = run.validation.back().tokens;
  if (!run.train.empty()) {
    const TrainPoint& last = run.train.back();
    status.tokens = std::max(status.tokens, last.tokens);
    status.loss = last.loss;
    if (last.seconds > 0) status.tokens_per_second = static_cast<double>(last.tokens) / last.seconds;
  }
  if (status.activity == Activity::kStale) status.message = "no process works on it; the same command continues";
  if (status.activity == Activity::kFailed || status.activity == Activity::kStopped) status.message = run.message;
  return status;
}

std::string row(const RunStatus& run) {
  const double share =
      run.total_tokens > 0 ? static_cast<double>(run.tokens) / static_cast<double>(run.total_tokens) : 0;
  std::string line = format_text(
      "{:<28} {:<9} {:>4.0f} %  {:>8} of {} tokens", run.name, activity_name(run.activity), std::floor(share * 100),
      format_count(static_cast<double>(run.tokens)), format_count(static_cast<double>(run.total_tokens)));
  if (std::isfinite(run.loss)) line += format_text("  loss {:.3f}", run.loss);
  const bool going = run.activity == Activity::kRunning && std::isfinite(run.seconds_left());
  if (going)
    line += format_text("  {}/s  ETA {}", format_count(run.tokens_per_second), format_duration(run.seconds_left()));
  return run.message.empty() ? line : format_text("{}  {}", line, run.message);
}

}  // namespace

double RunStatus::seconds_left() const {
  return static_cast<double>(total_tokens - tokens) / tokens_per_second;
}

Status read_status(const fs::path& folder) {
  Status status;
  if (fs::exists(folder / "study.json")) {
    const StudyResults study = read_study(folder);
    status.study = study.protocol.name;
    for (const RunResult& run : study.runs) {
      const fs::path run_folder = folder / "runs" / format_text("{}-seed{}", run.variant, run.seed);
      status.runs.push_back(status_of(run, run_folder, study.protocol.total_tokens));
    }
    return status;
  }
  if (!fs::exists(folder / "run.json")) fail_input("'{}' holds neither a study nor a run", folder.string());
  int64_t total_tokens = 0;
  const RunResult run = read_single_run(folder, &total_tokens);
  status.runs.push_back(status_of(run, fs::weakly_canonical(folder), total_tokens));
  return status;
}

Json status_to_json(const Status& status) {
  const auto known = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  Json runs = Json::array();
  for (const RunStatus& run : status.runs) {
    const bool running = run.activity == Activity::kRunning;
    runs.push_back(json_object({{"run", run.name},
                                {"state", activity_name(run.activity)},
                                {"tokens", run.tokens},
                                {"total_tokens", run.total_tokens},
                                {"loss", known(run.loss)},
                                {"tokens_per_second", known(run.tokens_per_second)},
                                {"seconds_left", running ? known(run.seconds_left()) : Json(nullptr)},
                                {"message", run.message}}));
  }
  Json json = Json::object();
  if (!status.study.empty()) json["study"] = status.study;
  json["runs"] = runs;
  return json;
}

std::string status_text(const Status& status) {
  std::string text;
  for (const RunStatus& run : status.runs) text += row(run) + "\n";
  if (status.study.empty()) return printable(std::move(text));
  std::vector<std::string> counts;
  for (Activity activity : {Activity::kFinished, Activity::kRunning, Activity::kStopped, Activity::kStale,
                            Activity::kFailed, Activity::kWaiting}) {
    const auto count = std::ranges::count(status.runs, activity, &RunStatus::activity);
    if (count > 0) counts.push_back(format_text("{} {}", count, activity_name(activity)));
  }
  return printable(
      text + format_text("study {}: {} runs, {}\n", status.study, status.runs.size(), join_text(counts, ", ")));
}

}  // namespace depthroute
