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

// All runs in turn, or run `only` alone (for job arrays). InputError where the folder holds another study.
StudyOutcome run_study(const StudyConfig& study, const std::filesystem::path& folder, std::optional<int64_t> only);

// Evaluates the test split with the last checkpoint of every finished run that has no test.json yet, once: the test
// split plays no part
// before the report. Runs whose data is not there are passed over with a warning.
void evaluate_test_split(const std::filesystem::path& study_folder);

}  // namespace depthroute
