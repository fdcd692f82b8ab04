#include <ATen/ATen.h>

#include "ops/elementary.h"

namespace depthroute {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  at::Tensor normalised = x * (x.square().mean(-1, true) + eps).rsqrt();
  return weight.defined() ? weight * normalised : normalised;
}

RopeTable make_rope_table(int64_t positions, int64_t head_width, double theta, const at::TensorOptions& options) {
  // Angles in float64: at position 4096 a float32 angle is already off by 1e-4.
  at::TensorOptions exact = options.dtype(at::kDouble);
  at::Tensor exponent = at::arange(0, head_width, 2, exact) / static_cast<double>(head_width);
  at::Tensor angle = at::outer(at::arange(positions, exact), at::pow(theta, -exponent));
  angle = at::cat({angle, angle}, -1);
  return {angle.cos().to(options.dtype()), angle.sin().to(options.dtype())};
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table) {
  std::vector<at::Tensor> halves = x.chunk(2, -1);
  return x * table.cosine + at::cat({-halves[1], halves[0]}, -1) * table.sine;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
}

}  // namespace depthroute
