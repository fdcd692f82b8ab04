// The processes that train one model together, each on its part of every batch (data parallelism), over PyTorch's c10d
// with Gloo.
#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "residual/parameters.h"

namespace depthroute {

class ProcessGroup {
 public:
  // A process by itself: the first of one. Every operation below leaves its argument as it is.
  ProcessGroup();
  // The group in which torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) or Slurm's srun (SLURM_PROCID and
  // SLURM_STEP_NUM_TASKS; MASTER_ADDR and MASTER_PORT may be set too) has started this process; a process by itself
  // where neither has. Waits until all are there. From then on a process that cannot reach another for most of a minute
  // ends with a line on standard error and exit code 1, whatever it is doing.
  // InputError for variables that make no sense, RunError where the others do not come in time.
  static ProcessGroup from_environment(std::chrono::seconds patience = std::chrono::minutes(5));
  ProcessGroup(ProcessGroup&&) noexcept;
  ~ProcessGroup();

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  bool alone() const { return size_ == 1; }
  bool first() const { return rank_ == 0; }
  // How many of them, this one included, compute on the cores that this one may use.
  int64_t sharing_cores() const { return sharing_cores_; }

  // What follows is called by all processes in the same order. RunError where one of them has ended.

  // values[i] becomes the sum over the processes' values[i].
  void sum(std::vector<double>& values) const;
  bool any(bool value) const;
  // The first one's value.
  int64_t from_first(int64_t value) const;
  // The contents of tensors[i] become those of process owners[i].
  void broadcast(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& owners) const;
  void barrier() const;

  // Called by two processes, one of them the first.
  void send_to_first(const at::Tensor& tensor) const;
  void receive(at::Tensor& tensor, int64_t from) const;

  // "rank 1 of 4: " for messages, empty for a process by itself.
  std::string name() const;

 private:
  friend class GradientReducer;
  struct Connection;

  std::unique_ptr<Connection> connection_;
  int64_t rank_ = 0, size_ = 1, sharing_cores_ = 1;
};

// Sums gradients over the processes while the backward pass still computes others, in buckets (c10d's Reducer, as in
// PyTorch's DistributedDataParallel).
class GradientReducer {
 public:
  // Of a process by itself it does nothing. The parameters must outlive it.
  GradientReducer(const ProcessGroup& group, const ParameterStore& parameters);
  ~GradientReducer();

  // Before the last backward pass of an optimizer step: when that has returned, the gradient of every parameter is the mean
  // over the processes of what each has accumulated. One that has no gradient in any process stays without.
  void expect_backward(const at::Tensor& loss);

 private:
  struct Reducer;
  std::unique_ptr<Reducer> reducer_;
};

// The message of an exception out of a backward pass whose gradients another process did not come to sum, as a RunError;
// what has nothing to do with that is thrown on as it is. To be called where the exception is handled.
[[noreturn]] void rethrow_as_lost_process(const ProcessGroup& group);

}  // namespace depthroute
