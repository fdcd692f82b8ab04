// AdamW with decoupled weight decay on matrices only (Loshchilov and Hutter, arXiv 1711.05101), by LibTorch's fused
// kernel.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "residual/parameters.h"
#include "train/run_config.h"

namespace depthroute {

class AdamW {
 public:
  AdamW(const ParameterStore& parameters, const TrainConfig& config);

  // One update from the parameters' gradients; a parameter without a gradient counts as having zeros, so that
  // weight decay and moments
  // do not depend on what a variant happens to use. Returns nothing; gradients are left as they are.
  void step(double learning_rate);

  // "exp_avg.NAME", "exp_avg_sq.NAME" and "step": views of the state, for a checkpoint to write and to fill.
  std::map<std::string, at::Tensor> state() const;

 private:
  struct Group {
    double weight_decay = 0;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, averages, squares, steps;
  };

  TrainConfig config_;
  std::vector<Group> groups_;
  at::Tensor step_;
};

// The Euclidean norm over all gradients, which are scaled down to `limit` where the norm exceeds it (0: never).
// Returns the norm before.
double clip_gradients(const ParameterStore& parameters, double limit);

}  // namespace depthroute
