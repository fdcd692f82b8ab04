// The ordinary residual: x = x + attention(norm(x)); x = x + mlp(norm(x)). One vector carries everything.
#include <ATen/ATen.h>

#include "residual/depth_routes.h"
#include "residual/sublayer_norm.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

class StandardStream : public ResidualStream {
 public:
  StandardStream(const ParameterStore& parameters, const ResidualConfig& config, const ResidualShape& shape,
                 at::Tensor embedding)
      : norm_(parameters, config, shape), x_(std::move(embedding)) {}

  AttentionInputs attention_inputs(int64_t layer) override {
    at::Tensor h = norm_(x_, input_norm_name(layer));
    return {h, h, h};
  }
  void write_attention(int64_t, const at::Tensor& output) override { x_ = x_ + output; }
  MlpInputs mlp_inputs(int64_t layer) override {
    at::Tensor h = norm_(x_, mlp_norm_name(layer));
    return {h, h};
  }
  void write_mlp(int64_t, const at::Tensor& output) override { x_ = x_ + output; }
  at::Tensor output() override { return x_; }

 private:
  SublayerNorm norm_;
  at::Tensor x_;
};

class StandardResidual : public Residual {
 public:
  StandardResidual(ResidualConfig config, const ResidualShape& shape) : config_(std::move(config)), shape_(shape) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({input_norm_name(layer), {shape_.width}, Initialisation::kOne});
      specs.push_back({mlp_norm_name(layer), {shape_.width}, Initialisation::kOne});
    }
    return specs;
  }
  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe&) const override {
    return std::make_unique<StandardStream>(parameters, config_, shape_, embedding);
  }
  ResidualCost cost() const override {
    auto sublayers = static_cast<double>(2 * shape_.layers), width = static_cast<double>(shape_.width);
    return {.flops = sublayers * width, .values = sublayers * 3 * width};
  }
  std::vector<std::string> source_names(const std::string&) const override { return {}; }

 private:
  ResidualConfig config_;
  ResidualShape shape_;
};

}  // namespace

std::unique_ptr<Residual> make_standard_residual(const ResidualConfig& config, const ResidualShape& shape) {
  return std::make_unique<StandardResidual>(config, shape);
}

}  // namespace depthroute
