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
  } else {
    double decay = config.decay_fraction * all;
    if (s > all - decay) fraction = least + (1 - least) * (all - s) / decay;
  }
  return config.learning_rate * fraction;
}

}  // namespace depthroute
