// The norm in front of a sublayer.
#pragma once
#include <string>

#include "ops/elementary.h"
#include "residual/parameters.h"
#include "residual/residual.h"

namespace depthroute {

class SublayerNorm {
 public:
  SublayerNorm(const ParameterStore& parameters, const ResidualConfig& config, const ResidualShape& shape)
      : parameters_(parameters), implementation_(config.implementation), eps_(shape.norm_eps) {}

  // x [..., d], by the weight of this name.
  at::Tensor operator()(const at::Tensor& x, const std::string& weight_name) const {
    return rms_norm(x, parameters_.get(weight_name), eps_, implementation_);
  }
  at::Tensor without_weight(const at::Tensor& x) const { return rms_norm(x, {}, eps_, implementation_); }

 private:
  const ParameterStore& parameters_;
  Implementation implementation_;
  double eps_;
};

}  // namespace depthroute
