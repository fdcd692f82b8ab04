#include <ATen/ATen.h>

#include "ops/elementary_forms.h"

namespace depthroute {

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps) {
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

at::Tensor apply_rope_reference(const at::Tensor& x, const RopeTable& table) {
  std::vector<at::Tensor> halves = x.chunk(2, -1);
  at::Tensor cosine = table.cosine.unsqueeze(1), sine = table.sine.unsqueeze(1);  // [T, 1, D]
  return x * cosine + at::cat({-halves[1], halves[0]}, -1) * sine;
}

at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

at::Tensor cross_entropy_sum_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                       const at::Tensor& targets) {
  return at::cross_entropy_loss(at::linear(hidden, weight), targets, {}, at::Reduction::Sum);
}

}  // namespace depthroute
