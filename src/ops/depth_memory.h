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

  // One mixture per query; see depth_read.h for shapes and errors.
  DepthRead read(const std::vector<at::Tensor>& queries, const at::Tensor& key_norm_weight);
  // One weighted sum per row of weights; see dense_mix.h for shapes and errors.
  std::vector<at::Tensor> mix(const at::Tensor& weights);

 private:
  std::vector<DepthSource*> sources();

  int64_t heads_;
  double eps_;
  Implementation implementation_;
  std::vector<DepthSource> completed_;
  std::optional<DepthSource> partial_;
};

}  // namespace depthroute
