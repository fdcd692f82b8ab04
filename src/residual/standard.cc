// The ordinary residual: x = x + attention(norm(x)); x = x + mlp(norm(x)). One vector carries everything.
#include <ATen/ATen.h>

#include "ops/elementary.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

class StandardStream : public ResidualStream {
 public:
  StandardStream(const ParameterStore& parameters, const ResidualShape& shape, at::Tensor embedding)
      : parameters_(parameters), eps_(shape.norm_eps), x_(std::move(embedding)) {}

  AttentionInputs attention_inputs(int64_t layer) override {
    at::Tensor h = rms_norm(x_, parameters_.get(layer_name(layer) + ".input_layernorm.weight"), eps_);
    return {h, h, h};
  }
  void write_attention(int64_t, const at::Tensor& output) override { x_ = x_ + output; }
  MlpInputs mlp_inputs(int64_t layer) override {
    at::Tensor h = rms_norm(x_, parameters_.get(layer_name(layer) + ".post_attention_layernorm.weight"), eps_);
    return {h, h};
  }
  void write_mlp(int64_t, const at::Tensor& output) override { x_ = x_ + output; }
  at::Tensor output() override { return x_; }

 private:
  const ParameterStore& parameters_;
  double eps_;
  at::Tensor x_;
};

class StandardResidual : public Residual {
 public:
  explicit StandardResidual(const ResidualShape& shape) : shape_(shape) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({layer_name(layer) + ".input_layernorm.weight", {shape_.width}, Initialisation::kOne});
      specs.push_back(
          {layer_name(layer) + ".post_attention_layernorm.weight", {shape_.width}, Initialisation::kOne});
    }
    return specs;
  }
  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe&) const override {
    return std::make_unique<StandardStream>(parameters, shape_, embedding);
  }
  ResidualCost cost() const override {
    auto sublayers = static_cast<double>(2 * shape_.layers), width = static_cast<double>(shape_.width);
    return {.flops = sublayers * width, .values = sublayers * 3 * width};
  }
  std::vector<std::string> source_names(const std::string&) const override { return {}; }

 private:
  ResidualShape shape_;
};

}  // namespace

std::unique_ptr<Residual> make_standard_residual(const ResidualShape& shape) {
  return std::make_unique<StandardResidual>(shape);
}

}  // namespace depthroute
