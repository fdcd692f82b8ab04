#include "train/schedule.h"

#include <cmath>
#include <numbers>

namespace depthroute {

double learning_rate_at(const TrainConfig& config, int64_t step, int64_t steps) {
  auto s = static_cast<double>(step + 1), warmup = static_cast<double>(config.warmup_steps),
       all = static_cast<double>(steps);
  if (s <= warmup) return config.learning_rate * s / warmup;
  double least = config.final_learning_rate_fraction;
  double fraction = 1;
  if (config.schedule == Schedule::kCosine) {
    double progress = (s - warmup) / (all - warmup);
    fraction = least + (1 - least) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  } else if (config.decay == Decay::kEnd) {
    double decay = config.decay_fraction * all;
    if (s > all - decay) fraction = least + (1 - least) * (all - s) / decay;
  }
  return config.learning_rate * fraction;
}

int64_t decay_begin(const TrainConfig& config, int64_t steps) {
  auto all = static_cast<double>(steps);
  return static_cast<int64_t>(std::floor(all - config.decay_fraction * all));
}

int64_t trunk_steps(const TrainConfig& config, int64_t context) {
  int64_t steps = config.steps(context);
  return config.decay == Decay::kMilestones ? decay_begin(config, steps) : steps;
}

int64_t trained_steps(const TrainConfig& config, int64_t context) {
  int64_t steps = trunk_steps(config, context);
  if (config.decay != Decay::kMilestones) return steps;
  for (int64_t milestone : config.milestones) {
    int64_t end = config.steps_for(milestone, context);
    steps += end - decay_begin(config, end);
  }
  return steps;
}

}  // namespace depthroute
