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

  // One update from the parameters' gradients, divided by `divisor` in the same pass; they are left divided. A parameter
  // without a gradient counts as having zeros, so that weight decay and moments do not depend on what a variant happens
  // to use.
  void step(double learning_rate, double divisor = 1);

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

// The Euclidean norm over all gradients.
double gradient_norm(const ParameterStore& parameters);

// What to divide the gradients by so that their norm is at most `limit` (0: no limit).
inline double clip_divisor(double norm, double limit) {
  return limit > 0 && norm > limit ? norm / limit : 1;
}

}  // namespace depthroute
