#include "train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "data/manifest.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/format.h"
#include "io/machine.h"
#include "io/progress.h"
#include "io/signals.h"
#include "model/conversion.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/schedule.h"
#include "train/tensorboard.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRunFile = "run.json";

// The branch of a run that decays to one of its milestones, from a checkpoint of the run.
struct Branch {
  fs::path start;
  int64_t milestone = 0;  // tokens
};

class Trainer {
 public:
  // A run, or a branch of it in a folder of its own.
  Trainer(const RunConfig& config, const fs::path& folder, const TrainingOptions& options, Branch branch = {});
  TrainingOutcome run();
  bool is_finished() const;

 private:
  void check_group() const;
  void check_identity() const;
  void write_identity() const;
  void check_milestones() const;
  void restore();
  bool restore_newest();
  bool run_branches();
  Trainer branch_to(int64_t milestone) const;
  void start_from(const fs::path& checkpoint);
  bool restore_from(const fs::path& checkpoint);
  void load_from(const fs::path& checkpoint);
  void make_optimizer();
  double train_step();
  void update(double learning_rate, double divisor);
  void record(const Json& event) const;
  Json batch_places() const;
  void fail_not_finite(const char* what);
  bool guard(double loss, double gradient_norm);
  void after_step(double loss, double gradient_norm, double learning_rate);
  void validate(bool milestone);
  void save(bool milestone);
  TrainingOutcome end(const char* reason, TrainingOutcome outcome);
  bool is_milestone() const;
  bool branches_off() const;
  bool is_branch() const { return !branch_.start.empty(); }

  Branch branch_;
  Json canonical_;  // of the run, also in a branch of it
  RunConfig config_;
  TrainingOptions options_;
  ProcessGroup alone_;
  const ProcessGroup& group_;
  // Before the folder: where the data does not fit, none is made.
  std::shared_ptr<const TokenDataset> training_, validation_;
  TrainingBatches batches_;
  fs::path folder_;
  std::unique_ptr<FolderLock> lock_;  // of the first process
  Metrics metrics_;
  std::unique_ptr<TensorboardFile> tensorboard_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<AdamW> optimizer_;
  ParameterShares shares_;
  std::unique_ptr<GradientReducer> reducer_;
  TrainingState state_;
  int64_t branched_until_ = -1;  // branches that begin at this step or before are done
  int64_t steps_, context_;
  double flops_per_token_;
};

std::unique_ptr<FolderLock> lock_run(const fs::path& folder, const ProcessGroup& group) {
  if (!group.first()) return nullptr;
  make_folder(folder);
  return std::make_unique<FolderLock>(folder);
}

std::shared_ptr<const TokenDataset> open_split(const RunConfig& config, Split split) {
  // Shards of others come without a manifest that says how large their vocabulary is: it is the model's then.
  int64_t vocabulary = fs::exists(config.data_folder / kManifestFile) ? 0 : config.model.vocabulary;
  auto data = std::make_shared<const TokenDataset>(TokenDataset::open(config.data_folder, split, vocabulary));
  if (data->vocabulary_size() != config.model.vocabulary) {
    fail_input(
        "'{}' has a vocabulary of {}, the model of {}: set model.vocabulary, or prepare the data with another "
        "tokenizer",
        config.data_folder.string(), data->vocabulary_size(), config.model.vocabulary);
  }
  return data;
}

// FLOP/s of the model's largest kind of matrix product, as this machine does it now: a few hundredths of a second.
double measured_product_rate(const ModelConfig& model, int64_t windows, bool bfloat16) {
  at::NoGradGuard no_grad;
  constexpr int64_t kMostTokens = 4096;
  const int64_t tokens = std::min(kMostTokens, windows * model.context);
  const auto options = at::TensorOptions(bfloat16 ? at::kBFloat16 : at::kFloat);
  const at::Tensor x = at::ones({tokens, model.width}, options),
                   weight = at::ones({model.mlp_hidden, model.width}, options);
  const double flops = 2.0 * static_cast<double>(tokens * model.width * model.mlp_hidden);
  double least = 1e9, spent = 0;
  for (int64_t round = 0; round < 3 || spent < 0.03; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    at::linear(x, weight);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    least = std::min(least, seconds);
    spent += seconds;
  }
  return flops / least;
}

// What remains of the config for a branch: a run that ends with its milestone, and decays towards it.
RunConfig branch_config(RunConfig config, const Branch& branch) {
  if (branch.start.empty()) return config;
  config.train.decay = Decay::kEnd;
  config.train.tokens = branch.milestone;
  config.train.milestones = {branch.milestone};
  return config;
}

Trainer::Trainer(const RunConfig& config, const fs::path& folder, const TrainingOptions& options, Branch branch)
    : branch_(std::move(branch)),
      canonical_(run_config_to_json(config)),
      config_(branch_config(config, branch_)),
      options_(options),
      group_(options.group != nullptr ? *options.group : alone_),
      training_(open_split(config, Split::kTrain)),
      validation_(open_split(config, Split::kValidation)),
      batches_(training_, config.order_seed(), config.model.context, config.train.batch_windows),
      folder_(folder),
      lock_(lock_run(folder_, group_)),
      metrics_(folder_ / "metrics.jsonl"),
      steps_(trunk_steps(config_.train, config.model.context)),
      context_(config.model.context),
      flops_per_token_(training_flops_per_token(config.model)) {
  state_.config_hash = config_hash(canonical_);
  state_.data_hash = training_->data_hash();
}

// What the processes of a group must have in common.
void Trainer::check_group() const {
  if (group_.alone()) return;
  if (config_.train.batch_windows % group_.size() != 0)
    fail_input("train.batch_windows = {} is not divided by the {} processes", config_.train.batch_windows,
               group_.size());
  const std::string own = checksum(state_.config_hash + state_.data_hash);
  const auto number = static_cast<int64_t>(std::stoull(own.substr(0, 15), nullptr, 16));
  const bool differs = group_.from_first(number) != number;
  if (differs) fail_input("{}the config or the data differ from those of rank 0", group_.name());
}

// Makes sure that the run in the folder, if there is one, is the same.
void Trainer::check_identity() const {
  fs::path path = folder_ / kRunFile;
  if (!fs::exists(path)) return;
  Json known = read_json(path);
  std::vector<std::string> keys = differing_keys(json_get<Json>(known, "config", path.string()), canonical_);
  if (!keys.empty()) {
    const bool horizon = std::ranges::all_of(
        keys, [](const std::string& key) { return key == "train.tokens" || key == "train.milestones"; });
    fail_input("'{}' holds a run of another config; it differs in {}: {}", folder_.string(), join_text(keys, ", "),
               horizon
                   ? "its schedule decays towards a fixed end, so it cannot be extended; use another folder (with "
                     "schedule = \"wsd\" and decay = \"milestones\" a run can be)"
                   : "use another folder, or the config it was started with");
  }
  if (json_get<std::string>(known, "data_hash", path.string()) != state_.data_hash) {
    fail_input("'{}' holds a run on other data than '{}' holds now", folder_.string(),
               config_.data_folder.string());
  }
  if (json_get<std::string>(known, "study_hash", path.string()) != options_.study_hash) {
    fail_input("'{}' holds a run of another study", folder_.string());
  }
}

void Trainer::write_identity() const {
  fs::path path = folder_ / kRunFile;
  if (fs::exists(path)) {
    // The same run, but perhaps with another horizon.
    Json known = read_json(path);
    if (known["config"]["train"]["milestones"] == canonical_["train"]["milestones"]) return;
    known["config"] = canonical_;
    write_json(path, known);
    return;
  }
  int64_t embedding = config_.model.vocabulary * config_.model.width;
  int64_t parameters = 0;
  for (const ParameterSpec& spec : model_parameters(config_.model)) {
    int64_t count = 1;
    for (int64_t extent : spec.shape) count *= extent;
    parameters += count;
  }
  double residual_values = make_residual(config_.model.residual, config_.model.residual_shape())->cost().values;
  write_json(path, {{"format", "depthroute-run/1"},
                    {"variant", options_.variant.empty() ? config_.model.residual.variant : options_.variant},
                    {"seed", config_.seed},
                    {"study_hash", options_.study_hash},
                    {"config_hash", state_.config_hash},
                    {"data_hash", state_.data_hash},
                    {"torch_version", TORCH_VERSION},
                    {"depthroute_version", DEPTHROUTE_VERSION},
                    {"threads", config_.train.threads},
                    {"processes", group_.size()},
                    {"machine", machine_description()},
                    {"parameters", parameters},
                    {"non_embedding_parameters", parameters - embedding},
                    {"flops_per_token", flops_per_token_},
                    {"residual_bytes_per_token", residual_values * sizeof(float)},
                    {"bytes_per_token",
                     static_cast<double>(training_->text_bytes()) / static_cast<double>(training_->tokens())},
                    {"config", canonical_}});
}

// A run whose last checkpoint has been damaged since is not finished; one whose checkpoints were removed is.
bool Trainer::is_finished() const {
  const auto finished = [&] {
    if (!metrics_.finished(config_.train.tokens)) return false;
    std::vector<fs::path> checkpoints = list_checkpoints(folder_);
    try {
      if (!checkpoints.empty()) verify_checkpoint(checkpoints.back());
      return true;
    } catch (const InputError&) {
      return false;  // restore() says so
    }
  };
  return group_.from_first(group_.first() && finished() ? 1 : 0) == 1;
}

// From the newest checkpoint that is whole; a damaged one is set aside with a warning.
bool Trainer::restore_newest() {
  std::vector<fs::path> checkpoints = list_checkpoints(folder_);
  for (auto checkpoint = checkpoints.rbegin(); checkpoint != checkpoints.rend(); ++checkpoint) {
    if (restore_from(*checkpoint)) return true;
  }
  return false;
}

void Trainer::restore() {
  reducer_.reset();
  constexpr int64_t kNone = -1;
  const int64_t step = group_.from_first(group_.first() && restore_newest() ? state_.step : kNone);
  const bool restored = step != kNone;
  if (restored && !group_.first()) load_from(checkpoint_folder(folder_, step));
  if (!restored && is_branch()) {
    // Set aside if it is damaged: the same command makes it again from the one before.
    const bool whole = group_.from_first(group_.first() && restore_from(branch_.start) ? 1 : 0) == 1;
    if (!whole) fail_run("there is no whole checkpoint to branch off from; start again");
    if (!group_.first()) load_from(branch_.start);
  } else if (!restored) {
    if (config_.train.initial_checkpoint.empty()) {
      model_ = std::make_unique<Transformer>(config_.model, config_.seed);
    } else {
      start_from(config_.train.initial_checkpoint);
    }
    make_optimizer();
  }
  model_->recompute_sublayers(config_.train.activation_checkpointing);
  model_->multiply_in_bfloat16(config_.train.bfloat16);
  reducer_ = std::make_unique<GradientReducer>(group_, model_->parameters());
  if (group_.first()) metrics_.rewind(state_.step);
}

void Trainer::make_optimizer() {
  if (!group_.alone()) shares_ = share_parameters(model_->parameters(), group_.size(), group_.rank());
  optimizer_ = std::make_unique<AdamW>(model_->parameters(), config_.train,
                                       config_.train.shard_optimizer ? shares_ : ParameterShares());
}

void Trainer::start_from(const fs::path& checkpoint) {
  Conversion conversion = convert_model(load_model(checkpoint), config_.model, config_.seed);
  if (group_.first()) {
    std::fprintf(stderr,
                 "%s: from '%s': %zu tensors as they are, %zu from other tensors, %zu initialised, %zu left out\n",
                 options_.label.c_str(), checkpoint.c_str(), conversion.copied.size(),
                 conversion.copied_from.size(), conversion.initialised.size(), conversion.left_out.size());
  }
  model_ = std::make_unique<Transformer>(std::move(conversion.model));
}

bool Trainer::restore_from(const fs::path& checkpoint) {
  const std::string config = state_.config_hash, data = state_.data_hash;
  try {
    load_from(checkpoint);
  } catch (const InputError& error) {
    std::fprintf(stderr, "warning: %s; it is set aside, the checkpoint before it is taken\n", error.what());
    set_aside_checkpoint(checkpoint);
    return false;
  }
  if (state_.config_hash != config) fail_input("'{}' is a checkpoint of another config", checkpoint.string());
  if (state_.data_hash != data) fail_input("'{}' is a checkpoint of a run on other data", checkpoint.string());
  return true;
}

void Trainer::load_from(const fs::path& checkpoint) {
  verify_checkpoint(checkpoint);
  TrainingState stored = load_training_state(checkpoint);
  model_ = std::make_unique<Transformer>(load_model(checkpoint));
  make_optimizer();
  load_optimizer(checkpoint, *optimizer_);
  state_ = stored;
}

Trainer Trainer::branch_to(int64_t milestone) const {
  TrainingOptions options = options_;
  options.label += format_text(" to {}", format_count(static_cast<double>(milestone)));
  int64_t end = config_.train.steps_for(milestone, context_);
  return {config_,
          branch_folder(folder_, end),
          options,
          {checkpoint_folder(folder_, decay_begin(config_.train, end)), milestone}};
}

// Before anything is changed: a milestone can be added only where its branch can still begin.
void Trainer::check_milestones() const {
  if (config_.train.decay != Decay::kMilestones) return;
  std::vector<fs::path> checkpoints = list_checkpoints(folder_);
  for (int64_t milestone : config_.train.milestones) {
    int64_t end = config_.train.steps_for(milestone, context_), begin = decay_begin(config_.train, end);
    fs::path start = checkpoint_folder(folder_, begin);
    bool ahead = checkpoints.empty() || checkpoints.back() < start;
    if (ahead || fs::exists(start) || fs::exists(branch_folder(folder_, end))) continue;
    fail_input(
        "the decay to the milestone of {} tokens begins after step {}, which the run in '{}' has passed without a "
        "checkpoint that it kept: the milestone cannot be added to it",
        milestone, begin, folder_.string());
  }
}

// True where all branches that begin at or before this step are done; false where a signal stopped one.
bool Trainer::run_branches() {
  if (config_.train.decay != Decay::kMilestones) return true;
  for (int64_t milestone : config_.train.milestones) {
    int64_t begin = decay_begin(config_.train, config_.train.steps_for(milestone, context_));
    if (begin <= branched_until_ || begin > state_.step) continue;
    Trainer branch = branch_to(milestone);
    if (branch.is_finished()) continue;
    // One model and optimizer in memory at a time; the checkpoint has all of it.
    reducer_.reset();
    optimizer_.reset();
    model_.reset();
    if (branch.run() == TrainingOutcome::kStopped) return false;
    restore();
  }
  branched_until_ = state_.step;
  return true;
}

TrainingOutcome Trainer::run() {
  check_group();
  if (!is_branch() && group_.first()) {
    check_identity();
    check_milestones();
  }
  if (is_finished()) return TrainingOutcome::kWasFinished;
  if (group_.first()) {
    remove_leftovers(folder_);
    remove_leftovers(checkpoint_folder(folder_, 0).parent_path());
  }
  at::set_num_threads(static_cast<int>(std::max<int64_t>(1, config_.train.threads / group_.sharing_cores())));
  restore();
  // Only now: a model that does not fit into memory leaves the folder free for one that does.
  if (!is_branch() && group_.first()) write_identity();
  reset_peak_memory();
  Progress progress(options_.label, steps_ * config_.train.batch_tokens(context_), "tokens", group_.first());
  progress.set_start(state_.tokens);
  std::vector<double> rate = {
      measured_product_rate(config_.model, config_.train.micro_batch_windows, config_.train.bfloat16)};
  group_.sum(rate);
  const double product_rate = rate[0], began_at = state_.seconds;
  const int64_t began_with = state_.tokens;
  if (group_.first()) tensorboard_ = std::make_unique<TensorboardFile>(folder_ / "tensorboard", state_.step);
  while (true) {
    if (!run_branches()) return end("stopped", TrainingOutcome::kStopped);
    if (state_.step >= steps_) break;
    auto begin = std::chrono::steady_clock::now();
    double learning_rate = learning_rate_at(config_.train, state_.step, steps_);
    // The mean loss, and the norm of the gradients: all processes have the same.
    std::vector<double> sums = {train_step() / static_cast<double>(group_.size()), 0};
    sums[1] = gradient_square_sum(model_->parameters(), shares_);
    group_.sum(sums);
    const double loss = sums[0], norm = std::sqrt(sums[1]);
    if (guard(loss, norm)) update(learning_rate, clip_divisor(norm, config_.train.gradient_clip));
    state_.step += 1;
    state_.tokens += config_.train.batch_tokens(context_);
    state_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double tokens_per_second = static_cast<double>(state_.tokens - began_with) / (state_.seconds - began_at);
    progress.update(state_.tokens, format_text("loss {:.3f}  MFU {:.0f} %  memory {:.2f} GB", loss,
                                               100 * flops_per_token_ * tokens_per_second / product_rate,
                                               static_cast<double>(memory_bytes()) / 1e9));
    after_step(loss, norm, learning_rate);
    if (group_.any(stop_signal() != 0) && (state_.step < steps_ || branches_off())) {
      save(is_milestone() || branches_off());
      return end("stopped", TrainingOutcome::kStopped);
    }
  }
  progress.finish();
  return end("finished", TrainingOutcome::kFinished);
}

// Forward and backward over this process's part of the batch, in micro-batches. Returns the mean loss over that part; the
// gradients are those of the mean loss over the whole batch.
double Trainer::train_step() {
  for (const auto& [name, parameter] : model_->parameters().items()) parameter.mutable_grad() = at::Tensor();
  const int64_t windows = config_.train.batch_windows / group_.size(), begin = group_.rank() * windows;
  const auto tokens = static_cast<double>(windows * context_);
  double loss = 0;
  try {
    for (int64_t first = 0; first < windows; first += config_.train.micro_batch_windows) {
      int64_t count = std::min(config_.train.micro_batch_windows, windows - first);
      Batch batch = batches_.read(state_.step, begin + first, count);
      at::Tensor part = model_->loss_sum(batch.token_ids, batch.targets) / tokens;
      if (first + count == windows) reducer_->expect_backward(part);
      part.backward();
      loss += part.item<double>();
    }
  } catch (...) {
    rethrow_as_lost_process(group_);
  }
  return loss;
}

void Trainer::update(double learning_rate, double divisor) {
  optimizer_->step(learning_rate, divisor);
  if (optimizer_->shares().owners.empty()) return;
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : model_->parameters().items()) parameters.push_back(parameter);
  group_.broadcast(parameters, shares_.owners);
}

void Trainer::record(const Json& event) const {
  if (!group_.first()) return;
  metrics_.add(event);
  if (event.contains("step") && event["event"] != "end") tensorboard_->add(event);
}

// Where the step's batch is: its windows, and where each begins on the disk.
Json Trainer::batch_places() const {
  Json places = Json::array();
  for (int64_t window : batches_.windows(state_.step, 0, config_.train.batch_windows)) {
    TokenPlace place = batches_.place_of_window(window);
    places.push_back(
        json_object({{"window", window}, {"file", place.file.string()}, {"byte_offset", place.byte_offset}}));
  }
  return places;
}

void Trainer::fail_not_finite(const char* what) {
  std::vector<fs::path> checkpoints = list_checkpoints(folder_);
  Json places = batch_places();
  std::string message = format_text(
      "the {} of step {} is not finite; its batch is windows {} of '{}', the first in '{}' from byte {} on; the "
      "last good "
      "checkpoint is {}",
      what, state_.step + 1, join_text(batches_.windows(state_.step, 0, config_.train.batch_windows), ","),
      config_.data_folder.string(), places[0]["file"].get<std::string>(), places[0]["byte_offset"].get<int64_t>(),
      checkpoints.empty() ? "none" : format_text("'{}'", checkpoints.back().string()));
  record({{"event", "end"},
          {"step", state_.step},
          {"tokens", state_.tokens},
          {"reason", "non_finite"},
          {"message", message},
          {"batch", places}});
  fail_run("{}", message);
}

// Whether the step's update is to be made. RunError where the loss or the gradient is not finite and that is not to be
// skipped, or has been too often in a row: then it is not the data.
bool Trainer::guard(double loss, double gradient_norm) {
  constexpr double kMemory = 0.95;
  constexpr int64_t kMostSkipped = 10;
  const bool finite = std::isfinite(loss) && std::isfinite(gradient_norm);
  const char* what = std::isfinite(loss) ? "gradient" : "loss";
  if (config_.train.spike_threshold == 0) {
    if (!finite) fail_not_finite(what);
    return true;
  }
  const bool spike = finite && state_.average_loss && loss > *state_.average_loss + config_.train.spike_threshold;
  if (finite && !spike) {
    state_.average_loss = state_.average_loss ? kMemory * *state_.average_loss + (1 - kMemory) * loss : loss;
    state_.skipped_in_a_row = 0;
    return true;
  }
  const bool skip = config_.train.skip_spikes && state_.skipped_in_a_row < kMostSkipped;
  if (!finite && !skip) fail_not_finite(what);
  record({{"event", "spike"},
          {"step", state_.step + 1},
          {"tokens", state_.tokens + config_.train.batch_tokens(context_)},
          {"loss", loss},
          {"gradient_norm", gradient_norm},
          {"average_loss", state_.average_loss ? Json(*state_.average_loss) : Json()},
          {"skipped", skip},
          {"batch", batch_places()}});
  // A level that stays is no spike: the average moves on where updates are made.
  if (!skip) state_.average_loss = kMemory * *state_.average_loss + (1 - kMemory) * loss;
  state_.skipped_in_a_row = skip ? state_.skipped_in_a_row + 1 : 0;
  return !skip;
}

// A milestone of a run with branches is one of a branch of it.
bool Trainer::is_milestone() const {
  if (config_.train.decay == Decay::kMilestones) return false;
  for (int64_t milestone : config_.train.milestones) {
    if (config_.train.steps_for(milestone, context_) == state_.step) return true;
  }
  return false;
}

bool Trainer::branches_off() const {
  return config_.train.decay == Decay::kMilestones &&
         std::ranges::any_of(config_.train.milestones, [&](int64_t milestone) {
           return decay_begin(config_.train, config_.train.steps_for(milestone, context_)) == state_.step;
         });
}

void Trainer::after_step(double loss, double gradient_norm, double learning_rate) {
  auto every = [&](int64_t interval) { return interval > 0 && state_.step % interval == 0; };
  bool milestone = is_milestone();
  if (every(config_.train.log_interval) || milestone) {
    record({{"event", "train"},
            {"step", state_.step},
            {"tokens", state_.tokens},
            {"loss", loss},
            {"learning_rate", learning_rate},
            {"gradient_norm", gradient_norm},
            {"seconds", state_.seconds},
            {"tokens_per_second", static_cast<double>(state_.tokens) / state_.seconds}});
  }
  if (every(config_.train.validation_interval) || milestone) validate(milestone);
  // What a branch begins from is kept.
  bool kept = milestone || branches_off();
  if (every(config_.train.checkpoint_interval) || kept) save(kept);
}

void Trainer::validate(bool milestone) {
  Evaluation evaluation = evaluate(*model_, *validation_, config_.train.micro_batch_windows, {}, group_);
  // The others wait for it at their next sum.
  if (!group_.first()) return;
  Json event = {
      {"event", "validation"}, {"step", state_.step}, {"tokens", state_.tokens}, {"milestone", milestone}};
  Json figures = evaluation_to_json(evaluation);
  figures.erase("tokens");  // of the split, the same each time
  event.update(figures);
  event["seconds"] = state_.seconds;
  event["flops"] = flops_per_token_ * static_cast<double>(state_.tokens);
  record(event);
  if (!milestone || !options_.diagnostics) return;
  Json diagnostics = options_.diagnostics(*model_, *validation_);
  if (diagnostics.empty()) return;
  Json diagnostics_event = {{"event", "diagnostics"}, {"step", state_.step}, {"tokens", state_.tokens}};
  diagnostics_event.update(diagnostics);
  record(diagnostics_event);
}

void Trainer::save(bool milestone) {
  fs::path target = checkpoint_folder(folder_, state_.step);
  state_.milestone = milestone;
  if (group_.first()) metrics_.sync();
  write_checkpoint(target, *model_, *optimizer_, state_, group_);
  if (group_.first()) remove_old_checkpoints(folder_);
}

TrainingOutcome Trainer::end(const char* reason, TrainingOutcome outcome) {
  std::vector<double> peaks(static_cast<size_t>(group_.size()));
  peaks[static_cast<size_t>(group_.rank())] = static_cast<double>(peak_memory_bytes());
  group_.sum(peaks);
  record({{"event", "memory"}, {"peak_bytes", static_cast<int64_t>(std::ranges::max(peaks))}});
  // A finished run has reached its horizon, though the last of the way was a branch's.
  bool finished = outcome == TrainingOutcome::kFinished;
  int64_t steps = finished ? config_.train.steps(context_) : state_.step;
  record({{"event", "end"},
          {"step", steps},
          {"tokens", steps * config_.train.batch_tokens(context_)},
          {"reason", reason}});
  if (group_.first()) metrics_.sync();
  return outcome;
}

}  // namespace

void check_training_data(const RunConfig& config) {
  open_split(config, Split::kValidation);
  TrainingBatches(open_split(config, Split::kTrain), config.order_seed(), config.model.context,
                  config.train.batch_windows);
}

TrainingOutcome run_training(const RunConfig& config, const fs::path& folder, const TrainingOptions& options) {
  keep_freed_memory();
  return Trainer(config, folder, options).run();
}

}  // namespace depthroute
