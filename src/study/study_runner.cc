#include "study/study_runner.h"

#include <csignal>
#include <cstdio>

#include "data/manifest.h"
#include "io/file.h"
#include "io/format.h"
#include "io/processes.h"
#include "io/signals.h"
#include "study/diagnostics.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

void freeze(const StudyConfig& study, const fs::path& folder) {
  fs::path path = folder / "study.json";
  make_folder(folder);
  if (!fs::exists(path)) {
    write_json(path, {{"format", "depthroute-study/1"}, {"hash", study.hash}, {"protocol", study.protocol}});
    return;
  }
  Json known = read_json(path);
  std::string where = format_text("'{}'", path.string());
  std::vector<std::string> keys = differing_keys(json_get<Json>(known, "protocol", where), study.protocol);
  if (!keys.empty()) {
    fail_input(
        "{} was frozen with other values of {}: a protocol does not change after its start; use another --out for "
        "a new study",
        where, join_text(keys, ", "));
  }
  if (json_get<std::string>(known, "hash", where) != study.hash)
    fail_input("{}: its hash is not that of its protocol", where);
}

fs::path run_folder(const fs::path& folder, const StudyRun& run) {
  return folder / "runs" / run.name();
}

void adopt_run(const StudyConfig& study, const StudyRun& run, const fs::path& source, const fs::path& target) {
  const std::string where = format_text("'{}'", (source / "run.json").string());
  Json description = read_json(source / "run.json");
  const Json canonical = run_config_to_json(run.config);
  const std::vector<std::string> keys = differing_keys(json_get<Json>(description, "config", where), canonical);
  if (!keys.empty())
    fail_input("{} cannot be extended: it was trained with other values of {}", where, join_text(keys, ", "));
  FolderLock lock(source);
  AtomicFolder copy(target);
  std::error_code error;
  for (const char* part : {"metrics.jsonl", "checkpoints", "branches"}) {
    if (!fs::exists(source / part)) continue;
    fs::copy(source / part, copy.temporary() / part, fs::copy_options::recursive, error);
    if (error) fail_run("cannot copy '{}': {}", (source / part).string(), error.message());
  }
  description["study_hash"] = study.hash;
  description["config"] = canonical;
  write_json(copy.temporary() / "run.json", description);
  copy.commit();
}

// One run; false where it failed. A run that fails leaves the others alone: its error is shown, and the report will
// name it.
bool train_one(const StudyConfig& study, const StudyRun& run, const fs::path& folder, StudyOutcome& outcome) {
  TrainingOptions options{.label = format_text("[{}/{}] {}", run.index + 1, study.runs.size(), run.name()),
                          .variant = run.variant,
                          .study_hash = study.hash,
                          .diagnostics = milestone_diagnostics()};
  try {
    TrainingOutcome result = run_training(run.config, run_folder(folder, run), options);
    outcome.stopped = result == TrainingOutcome::kStopped;
    if (result != TrainingOutcome::kWasFinished) ++outcome.trained;
    return true;
  } catch (const RunError& error) {
    std::fprintf(stderr, "%s failed: %s\n", run.name().c_str(), error.what());
    return false;
  }
}

// The runs as processes of their own, options.jobs at a time.
void train_side_by_side(const StudyConfig& study, const fs::path& folder, const StudyOptions& options,
                        StudyOutcome& outcome) {
  std::vector<std::vector<std::string>> commands;
  std::vector<bool> was_finished;
  for (const StudyRun& run : study.runs) {
    commands.push_back(options.command);
    commands.back().insert(commands.back().end(), {"--run", std::to_string(run.index)});
    was_finished.push_back(Metrics(run_folder(folder, run) / "metrics.jsonl").finished(run.config.train.tokens));
  }
  auto codes = run_processes(commands, options.jobs, [&](size_t index, const std::string& line) {
    constexpr std::string_view kError = "depthroute: error:";
    bool error = line.starts_with(kError);
    std::fprintf(stderr, "%s%s\n", error ? (study.runs[index].name() + " failed:").c_str() : "",
                 line.c_str() + (error ? kError.size() : 0));
  });
  for (size_t i = 0; i < codes.size(); ++i) {
    bool stopped = !codes[i] || *codes[i] == 128 + SIGTERM || *codes[i] == 128 + SIGINT;
    if (stopped && stop_signal() != 0) {
      outcome.stopped = true;
    } else if (codes[i] != 0) {
      ++outcome.failed;
    } else if (!was_finished[i]) {
      ++outcome.trained;
    }
  }
}

void evaluate_run(const fs::path& run_folder) {
  fs::path target = run_folder / "test.json";
  if (fs::exists(target) || !fs::exists(run_folder / "run.json")) return;
  Json config = json_get<Json>(read_json(run_folder / "run.json"), "config", run_folder.string());
  auto tokens = json_get<int64_t>(config["train"], "tokens", run_folder.string());
  if (!Metrics(run_folder / "metrics.jsonl").finished(tokens)) return;
  fs::path checkpoint = find_checkpoint(run_folder);
  verify_checkpoint(checkpoint);
  Transformer model = load_model(checkpoint);
  fs::path data_folder = json_get<std::string>(config["data"], "folder", run_folder.string());
  int64_t vocabulary = fs::exists(data_folder / kManifestFile) ? 0 : model.config().vocabulary;
  TokenDataset data = TokenDataset::open(data_folder, Split::kTest, vocabulary);
  auto windows = json_get<int64_t>(config["train"], "micro_batch_windows", run_folder.string());
  Json result = evaluation_to_json(evaluate(model, data, windows));
  result["checkpoint"] = checkpoint.filename().string();
  write_json(target, result);
}

}  // namespace

void adopt_runs(const StudyConfig& study, const fs::path& old_folder, const fs::path& folder) {
  if (!study.runs[0].config.train.extendable()) {
    fail_input(
        "the study's schedule decays towards a fixed end, so no run can be extended to it; schedule = \"wsd\" with "
        "decay = \"milestones\" or \"none\" can");
  }
  if (!fs::exists(old_folder / "study.json")) fail_input("'{}' holds no study", old_folder.string());
  for (const StudyRun& run : study.runs) {
    const fs::path source = run_folder(old_folder, run), target = run_folder(folder, run);
    if (fs::exists(target / "run.json") || !fs::exists(source / "run.json")) continue;
    make_folder(target.parent_path());
    adopt_run(study, run, source, target);
  }
}

StudyOutcome run_study(const StudyConfig& study, const fs::path& folder, const StudyOptions& options) {
  std::optional<int64_t> only = options.only;
  if (only && (*only < 0 || *only >= static_cast<int64_t>(study.runs.size()))) {
    fail_input("--run {}: the study has the runs 0 to {}", *only, study.runs.size() - 1);
  }
  // The runs share data and sizes. What cannot begin is not frozen: once it is put right, the same folder serves.
  check_training_data(study.runs[0].config);
  freeze(study, folder);
  if (!options.extend.empty()) adopt_runs(study, options.extend, folder);
  StudyOutcome outcome;
  if (options.jobs > 1 && !only) {
    train_side_by_side(study, folder, options, outcome);
    return outcome;
  }
  for (const StudyRun& run : study.runs) {
    if (only && run.index != *only) continue;
    if (!train_one(study, run, folder, outcome)) ++outcome.failed;
    // The signal may have come in a run's last step: that run is done, the study is not.
    if (stop_signal() != 0) outcome.stopped = outcome.stopped || (!only && run.index + 1 < std::ssize(study.runs));
    if (outcome.stopped) break;
  }
  return outcome;
}

void evaluate_test_split(const fs::path& study_folder) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const fs::directory_entry& item : fs::directory_iterator(study_folder / "runs", error))
    folders.push_back(item.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    try {
      evaluate_run(folder);
    } catch (const InputError& problem) {
      std::fprintf(stderr, "warning: no test loss for %s: %s\n", folder.filename().c_str(), problem.what());
    }
  }
}

}  // namespace depthroute
