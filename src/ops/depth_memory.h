// What the depth reads of one forward pass read from: the completed sources and the running partial sum of the
// current block. It is the place where an implementation keeps what reads share: the fused one the norms of the
// sources and the accumulators of their gradients, see ops/depth_read_fused.h. A memory belongs to one forward
// pass; when it is destroyed, what the backward pass needs is still held by autograd, and nothing else is.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/depth_read.h"
#include "ops/depth_read_fused.h"
#include "ops/implementation.h"

namespace depthroute {

class DepthMemory {
 public:
  DepthMemory(int64_t heads, double eps, Implementation implementation);

  // Adds a completed source [..., d]; every later read sees it. What is known of it is kept where it was the
  // partial sum.
  void append(const at::Tensor& source);
  // Replaces the running partial sum, read after the completed sources; an undefined tensor removes it.
  void set_partial(const at::Tensor& partial);
  // Number of sources a read sees now.
  int64_t size() const;

  // Announces the next reads, all of the sources completed so far: the first before any partial sum is set, the others with
  // one. Where that moves fewer bytes (for reads of two routes), they are then done in two phases (ops/depth_read_driver.h), to the same results but
  // for rounding. An append ends the plan.
  void plan(std::vector<PlannedRead> reads);
  // One mixture per query; see depth_read.h for shapes and errors.
  DepthRead read(const std::vector<at::Tensor>& queries, const at::Tensor& key_norm_weight);
  // One weighted sum per row of weights; see dense_mix.h for shapes and errors.
  std::vector<at::Tensor> mix(const at::Tensor& weights);

 private:
  std::vector<DepthSource*> sources();
  // The first phase of the next read, if there is one.
  std::optional<DepthReadPhase> next_phase(const std::vector<at::Tensor>& queries);

  int64_t heads_;
  double eps_;
  Implementation implementation_;
  std::vector<DepthSource> completed_;
  std::optional<DepthSource> partial_;
  std::vector<PlannedRead> planned_;
  std::vector<DepthReadPhase> phases_;  // of the planned reads, once the first of them is done
  size_t next_planned_ = 0;
};

}  // namespace depthroute
