// The training step of several variants against each other and against the speed of matrix products.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "model/model_config.h"

namespace depthroute {

struct StepFigures {
  std::string variant;
  int64_t parameters = 0;
  double flops_per_token = 0, residual_bytes_per_token = 0;
  Spread seconds;  // of a step: forward, backward, clipping, AdamW
  // Speed against the first variant and against the limit: medians over the rounds of the ratio of a round's least
  // times, since a disturbance makes a step slower, never faster.
  double relative_to_first = 1, share_of_limit = 0;
  double peak_bytes = 0;  // of resident memory, with nothing but this model in the process
};

struct StepBench {
  int64_t tokens = 0;  // of a step
  // The least time of a step of the standard residual: its matrix products at the speed measured for each of their
  // shapes in the same run, and attention's at the mean of these.
  Spread limit_seconds;
  std::vector<StepFigures> variants;  // in the order given
};

struct StepBenchOptions {
  int64_t windows = 1, rounds = 5, steps = 1;
  bool activation_checkpointing = false;
};

// Steps of windows * context random tokens. Every model does a step alone in the process, for its memory; then in each
// round every model does `steps`, in turn and every other round backwards. All are kept in memory for that, or, where
// they would take more than 60 % of it, made anew in each round, with a step to warm up. on_progress is called with the
// number of turns done, of 1 + rounds a model.
StepBench bench_step(const std::vector<ModelConfig>& models, const StepBenchOptions& options,
                     const std::function<void(int64_t)>& on_progress);

Json step_bench_to_json(const StepBench& bench);

}  // namespace depthroute
