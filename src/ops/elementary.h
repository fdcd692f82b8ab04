// The other operations of a layer, in reference form: plain differentiable ATen operations, float32 and float64.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace depthroute {

// weight * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich, arXiv 1910.07467). x [..., d],
// weight [d] or
// undefined for none.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Cosines and sines of rotary position embedding (Su et al., arXiv 2104.09864), each [T, D], for the rotate-half
// convention of
// Hugging Face Llama: dimension i < D/2 is rotated with dimension i + D/2 by the angle t / theta^(2i/D).
struct RopeTable {
  at::Tensor cosine, sine;
};
RopeTable make_rope_table(int64_t positions, int64_t head_width, double theta, const at::TensorOptions& options);

// x [B, heads, T, D], rotated; the table has exactly T rows.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table);

// silu(gate) * up (Shazeer, arXiv 2002.05202).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Sum over tokens of -log softmax(logits)[target], in nats: logits [N, V], targets [N] int64.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace depthroute
