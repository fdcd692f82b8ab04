// One training run in one folder:
//   run.json       what it is: config, hashes, versions, counts
//   metrics.jsonl  what happened, one event a line
//   checkpoints/   see checkpoint.h
// The same command continues a run where it stopped, to the same bits. Several processes may train together; the first one
// keeps the folder, which all must see.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "data/token_dataset.h"
#include "io/json.h"
#include "model/transformer.h"
#include "train/process_group.h"
#include "train/run_config.h"

namespace depthroute {

struct TrainingOptions {
  std::string label = "train";  // in the progress line
  std::string variant;          // in run.json: the name a study knows the run by
  std::string study_hash;       // in run.json; empty outside a study
  // Called at every milestone; what it returns becomes a "diagnostics" event. Null for none.
  std::function<Json(const Transformer&, const TokenDataset& validation)> diagnostics;
  const ProcessGroup* group = nullptr;  // null: a process by itself
};

enum class TrainingOutcome { kFinished, kWasFinished, kStopped };

// InputError where the run's data is missing, damaged, too small or of another vocabulary.
void check_training_data(const RunConfig& config);

// InputError for a config, data or folder that do not fit; RunError where a loss is not finite or something cannot
// be written.
TrainingOutcome run_training(const RunConfig& config, const std::filesystem::path& folder,
                             const TrainingOptions& options);

}  // namespace depthroute
