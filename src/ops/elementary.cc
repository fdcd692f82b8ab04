#include "ops/elementary.h"

#include <ATen/core/Tensor.h>

#include "ops/elementary_forms.h"

namespace depthroute {
namespace {

bool fused(Implementation implementation, const at::Tensor& tensor) {
  return implementation == Implementation::kFused && tensor.device().is_cpu();
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, Implementation implementation) {
  return fused(implementation, x) ? rms_norm_fused(x, weight, eps) : rms_norm_reference(x, weight, eps);
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table, Implementation implementation) {
  return fused(implementation, x) ? apply_rope_fused(x, table) : apply_rope_reference(x, table);
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, Implementation implementation) {
  return fused(implementation, gate) ? swiglu_fused(gate, up) : swiglu_reference(gate, up);
}

at::Tensor cross_entropy_sum(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                             Implementation implementation) {
  return fused(implementation, hidden) ? cross_entropy_sum_fused(hidden, weight, targets)
                                       : cross_entropy_sum_reference(hidden, weight, targets);
}

}  // namespace depthroute
