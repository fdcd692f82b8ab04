// The dense mix: every token forms, from K sources (earlier residual states), C weighted sums whose weights are given:
//
//   h_c = sum_i w_{c,i} S_i
//
// The weights are parameters, the same for all tokens (DenseFormer, arXiv 2402.02622), or computed for each token
// (MUDDFormer, arXiv 2502.12170).
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/depth_read_fused.h"

namespace depthroute {

// The definition, in plain differentiable ATen operations.
//   sources  1..128 tensors [..., d] of one shape, dtype (float32, float64) and device
//   weights  [C, K], or [N, C, K] with a row of weights for each of the N tokens; C from 1 to 4
// Returns C tensors of the sources' shape. InputError, naming the argument, for a wrong shape, dtype or device.
std::vector<at::Tensor> dense_mix_reference(const std::vector<at::Tensor>& sources, const at::Tensor& weights);

// The same on the kernel of ops/dense_mix_kernel.h, for sources that are read again: their gradients are added in
// place (see ops/depth_read_fused.h). Besides, InputError where the sources are not on the CPU. Derivatives are of
// first order only: a backward pass that builds a graph is a RunError.
std::vector<at::Tensor> dense_mix_fused(const std::vector<DepthSource*>& sources, const at::Tensor& weights);

}  // namespace depthroute
