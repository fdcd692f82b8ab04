// The fused depth read on tensors, without autograd: the kernel of ops/depth_read_kernel.h with threads and the memory that
// it writes to. What differentiates it is in ops/depth_read_fused.h and operators/operators.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace depthroute {

// Dense tensors on the CPU, of one dtype, that have passed check_depth_read: a read's arguments and what its backward
// pass needs.
struct DepthReadTensors {
  std::vector<at::Tensor> sources;           // K of [..., d]
  std::vector<at::Tensor> reciprocal_norms;  // K of [N, H]
  std::vector<at::Tensor> queries;           // R of [d]
  at::Tensor key_weight, output_weight;      // [d]; output_weight may be undefined
  at::Tensor scores, probabilities;          // [R, N, K, H]
  at::Tensor output_norm;                    // [R, N] where there is an output_weight

  int64_t tokens() const { return reciprocal_norms[0].size(0); }
  int64_t width() const { return key_weight.size(0); }
};

// The R mixtures. Sets probabilities, output_norm and, where they are kept, scores; fills the norms of sources that are not
// known yet.
std::vector<at::Tensor> compute_depth_read(DepthReadTensors* read, const std::vector<bool>& norm_known, int64_t heads,
                                           double eps, bool keep_scores);

// Where the gradient of a source goes: an undefined sum where it is not wanted; `assign` says that the sum's content is
// undefined so far.
struct SourceGradientSum {
  at::Tensor sum;  // [..., d]
  bool assign = false;
};

// From the gradients of the mixtures (dense; undefined ones are zero): adds to the sums, and returns the gradients of the
// queries, of key_weight and, if there is one, of output_weight.
std::vector<at::Tensor> differentiate_depth_read(const DepthReadTensors& read, int64_t heads,
                                                 const std::vector<at::Tensor>& mixture_gradients,
                                                 const std::vector<SourceGradientSum>& source_gradients);

}  // namespace depthroute
