// AdamW with decoupled weight decay on matrices only (Loshchilov and Hutter, arXiv 1711.05101), by LibTorch's fused
// kernel. Several processes share the work and the state: each has that of some parameters (ZeRO stage 1, arXiv
// 1910.02054).
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "residual/parameters.h"
#include "train/run_config.h"

namespace depthroute {

// Which of several processes keeps the state of each parameter and updates it; of one process, all its own.
struct ParameterShares {
  std::vector<int64_t> owners{};  // in the order of the store; empty: all are this process's
  int64_t rank = 0;

  bool own(size_t parameter) const { return owners.empty() || owners[parameter] == rank; }
};
// The largest parameters first, each to the process with the fewest elements so far.
ParameterShares share_parameters(const ParameterStore& parameters, int64_t processes, int64_t rank);

class AdamW {
 public:
  // Of this process's parameters.
  AdamW(const ParameterStore& parameters, const TrainConfig& config, ParameterShares shares = {});

  const ParameterShares& shares() const { return shares_; }

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
  ParameterShares shares_;
  std::vector<Group> groups_;
  at::Tensor step_;
};

// The sum of the squares of this process's gradients' elements: over all processes, the square of the Euclidean norm.
double gradient_square_sum(const ParameterStore& parameters, const ParameterShares& shares = {});

// What to divide the gradients by so that their norm is at most `limit` (0: no limit).
inline double clip_divisor(double norm, double limit) {
  return limit > 0 && norm > limit ? norm / limit : 1;
}

}  // namespace depthroute
