// The other operations of a layer, each in two forms with one contract: its definition in differentiable ATen operations
// (any device), and fused with its backward pass for the CPU (first derivatives only; elsewhere the definition is
// used). float32 and float64.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/implementation.h"

namespace depthroute {

// weight * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich, arXiv 1910.07467). x [..., d],
// weight [d] or undefined for none.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Implementation implementation);

// Cosines and sines of rotary position embedding (Su et al., arXiv 2104.09864), each [T, D], for the rotate-half
// convention of Hugging Face Llama: dimension i < D/2 is rotated with dimension i + D/2 by the angle
// t / theta^(2i/D).
struct RopeTable {
  at::Tensor cosine, sine;
};
RopeTable make_rope_table(int64_t positions, int64_t head_width, double theta, const at::TensorOptions& options);

// x [B, T, heads, D], rotated; the table has exactly T rows.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, Implementation implementation);

// silu(gate) * up (Shazeer, arXiv 2002.05202).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Implementation implementation);

// Sum over tokens of -log softmax(hidden weight^T)[target], in nats: hidden [N, d], weight [V, d], targets [N] int64 from
// 0 to V - 1. The fused form makes the logits of some tokens at a time, and their gradient in place of them: there are
// never N V logits.
at::Tensor cross_entropy_sum(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                             Implementation implementation);

}  // namespace depthroute
