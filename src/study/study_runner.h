// Runs a study in its folder:
//   study.json   the frozen protocol and its hash, written before the first run
//   runs/        one folder a run (train/trainer.h)
// The same command continues where it stopped; a changed protocol is refused.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "study/study_config.h"

namespace depthroute {

struct StudyOutcome {
  bool stopped = false;  // by a signal; what was done is saved
  int64_t trained = 0;   // runs that this call worked on
  int64_t failed = 0;    // runs that ended in an error, which was shown
};

struct StudyOptions {
  std::optional<int64_t> only{};       // this run alone, for job arrays
  int64_t jobs = 1;                    // above 1: that many runs at a time, each a process
  std::vector<std::string> command{};  // for those: the program and its arguments, all but "--run N"
  std::filesystem::path extend{};      // adopt_runs from there first
};

// Takes over what the study in `old_folder` has trained of the same runs, as copies, where `folder` has no run of that
// name yet: the study then goes on from there. For a longer horizon, which is another protocol with another hash; the
// old study stays as it is. InputError where the schedule cannot be extended, or the old runs differ in more than how
// far they go; RunError while one of them is being trained.
void adopt_runs(const StudyConfig& study, const std::filesystem::path& old_folder,
                const std::filesystem::path& folder);

// Trains what is not trained yet. InputError where the data does not fit or the folder holds another study.
StudyOutcome run_study(const StudyConfig& study, const std::filesystem::path& folder, const StudyOptions& options);

// Evaluates the test split with the last checkpoint of every finished run that has no test.json yet, once: the test
// split plays no part before the report. Runs whose data is not there are passed over with a warning.
void evaluate_test_split(const std::filesystem::path& study_folder);

}  // namespace depthroute
