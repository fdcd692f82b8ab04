// The depth read: attention over depth. Every token forms, from K sources (earlier residual states), R convex
// combinations.
//
//   k_i     = RMSNorm(S_i; w)                 rstd_i = 1 / sqrt(mean(S_i^2) + eps)
//   a_{r,i} = q_r . k_i
//   p_r     = softmax_i(a_r)
//   h_r     = sum_i p_{r,i} S_i               (optionally RMSNorm(h_r; g))
//
// With H heads the width is cut into H slices, and every dot product, norm and softmax is per slice.
// Sources: Block Attention Residuals (arXiv 2603.15031, equation of the depth attention), several routes:
// Role-Decoupled Attention Residuals (arXiv 2608.01075).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/depth_read_limits.h"

namespace depthroute {

struct DepthRead {
  std::vector<at::Tensor> mixtures;  // R tensors of the sources' shape [..., d]
  at::Tensor probabilities;          // [R, N, K, H], detached; N is the number of tokens
};

// The definition, in plain differentiable ATen operations: the yardstick of every faster implementation.
//   sources            1..128 tensors [..., d] of one shape, dtype (float32, float64, bfloat16) and device
//   queries            1..4 tensors [d]
//   key_norm_weight    [d]
//   output_norm_weight [d], or undefined for none
// All of one dtype. bfloat16 is for storage: the arithmetic, the probabilities and the sums of a source's gradients are in
// float32.
// InputError, naming the argument, for a wrong shape, dtype or device, or where `heads` does not divide d.
DepthRead depth_read_reference(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                               const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight,
                               int64_t heads, double eps);

// The checks of depth_read_reference, shared by all implementations.
void check_depth_read(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                      const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads);

}  // namespace depthroute
