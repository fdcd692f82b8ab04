// The two forms of the operations in ops/elementary.h, which chooses between them.
#pragma once
#include "ops/elementary.h"

namespace depthroute {

at::Tensor rms_norm_reference(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor apply_rope_reference(const at::Tensor& x, const RopeTable& table);
at::Tensor swiglu_reference(const at::Tensor& gate, const at::Tensor& up);
at::Tensor cross_entropy_sum_reference(const at::Tensor& hidden, const at::Tensor& weight,
                                       const at::Tensor& targets);

// On the CPU.
at::Tensor rms_norm_fused(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor apply_rope_fused(const at::Tensor& x, const RopeTable& table);
at::Tensor swiglu_fused(const at::Tensor& gate, const at::Tensor& up);
at::Tensor cross_entropy_sum_fused(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets);

}  // namespace depthroute
