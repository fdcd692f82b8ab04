// The config of one run: TOML in, one canonical JSON object with every default filled in out. Two runs with the
// same canonical form, the same data and the same number of threads have the same bits.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/config.h"
#include "model/model_config.h"

namespace depthroute {

enum class Schedule { kCosine, kWarmupStableDecay };

// Where a warm-up-stable-decay run decays (docs/file_formats.md says more): at its end, which fixes its horizon; on a branch of its
// own to every milestone; or nowhere. With the latter two the run itself stays at the full rate and can be extended.
enum class Decay { kEnd, kMilestones, kNone };

struct TrainConfig {
  int64_t tokens = 0;         // in all; rounded up to whole steps
  int64_t batch_windows = 0;  // windows of `context` tokens in an optimizer step
  int64_t micro_batch_windows = 0;
  bool activation_checkpointing = false;  // see Transformer::recompute_sublayers
  bool bfloat16 = false;                  // precision = "bf16"; see Transformer::multiply_in_bfloat16
  double learning_rate = 0;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  Decay decay = Decay::kEnd;    // warm-up, stable, decay only, as is the next
  double decay_fraction = 0.2;  // of all steps to the end, or to the milestone
  double final_learning_rate_fraction = 0.1;
  double weight_decay = 0.1;  // on matrices only
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double gradient_clip = 1.0;  // of the norm over all gradients; 0 for none
  // A step whose loss is this many nats above the moving average is a spike; 0: no look-out. Spikes are recorded with their
  // batch, and with skip_spikes the update is left out, as it is then for a loss or gradient that is not finite.
  double spike_threshold = 0;
  bool skip_spikes = false;
  std::vector<int64_t> milestones;  // in tokens, ascending; each rounded up to a whole step
  int64_t validation_interval = 0;  // in steps, between milestones; 0 for milestones only
  int64_t checkpoint_interval = 0;  // in steps; 0 for milestones and the end only
  int64_t log_interval = 10;        // in steps
  int64_t threads = 0;              // 0: as many as the machine has cores; processes on the same cores share them
  bool shard_optimizer = true;      // several processes: each keeps a share of the optimizer's state, not all of it
  // Where the weights start from, a checkpoint of any variant (see model/conversion.h); empty: drawn from the seed.
  std::filesystem::path initial_checkpoint;
  std::string initial_weights;  // the checksum of that checkpoint's weights

  // May `tokens` grow, and milestones be added, when a run continues? Its bits up to there do not depend on them then.
  bool extendable() const { return decay != Decay::kEnd; }

  // What follows from the above for windows of `context` tokens.
  int64_t batch_tokens(int64_t context) const { return batch_windows * context; }
  int64_t steps(int64_t context) const { return steps_for(tokens, context); }
  int64_t steps_for(int64_t token_count, int64_t context) const {
    return (token_count + batch_tokens(context) - 1) / batch_tokens(context);
  }
};

struct RunConfig {
  ModelConfig model;
  TrainConfig train;
  std::filesystem::path data_folder;
  uint64_t seed = 1;
  std::optional<uint64_t> data_order_seed{};  // of the data order alone; absent: seed

  uint64_t order_seed() const { return data_order_seed.value_or(seed); }
};

// Reads the tables [model], [residual], [data] and [train] and the keys `seed` and `data_order_seed`. A study's file has the same tables.
RunConfig read_run_config(Config& config);
// [model] and [residual]. A variant given here wins over residual.variant (the variants of a study).
ModelConfig read_model_config(Config& config, const std::string& variant = "");
TrainConfig read_train_config(Config config, int64_t context);

// Everything that determines the result; the data by its folder's name only (the data's hash stands beside it in
// run.json).
Json run_config_to_json(const RunConfig& config);
// Keys in which two canonical forms differ, leaving out those that do not change the result (log_interval,
// checkpoint_interval, and paths; tokens and milestones of a run that can be extended).
std::vector<std::string> differing_keys(const Json& a, const Json& b);
// The checksum of the canonical form without the keys that do not change the result.
std::string config_hash(const Json& canonical);

}  // namespace depthroute
