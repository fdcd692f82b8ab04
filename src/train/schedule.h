// Learning rate as a function of the step alone.
#pragma once
#include <cstdint>

#include "train/run_config.h"

namespace depthroute {

// The rate of step `step` (0-based) of `steps`. Warm-up rises linearly to the full rate. Cosine then falls to the
// final fraction at the last step (Loshchilov and Hutter, arXiv 1608.03983); warm-up-stable-decay stays and falls
// linearly over the last decay_fraction of all steps (Hu et al., arXiv 2404.06395), or, where the decay is not at the
// run's end, just stays.
double learning_rate_at(const TrainConfig& config, int64_t step, int64_t steps);

// Steps of warm-up, stable, decay before the decay, were the run to end after `steps`.
int64_t decay_begin(const TrainConfig& config, int64_t steps);

// Steps of the run itself, and with those of the branches that decay to the milestones.
int64_t trunk_steps(const TrainConfig& config, int64_t context);
int64_t trained_steps(const TrainConfig& config, int64_t context);

}  // namespace depthroute
