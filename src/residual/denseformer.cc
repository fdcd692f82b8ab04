// DenseFormer (arXiv 2402.02622): the residual inside a layer is the ordinary one; behind each layer the next one's
// input is a weighted sum of the embedding and all layers' outputs so far, with one learned weight each. It starts as
// the ordinary residual: weight 1 for the newest.
#include <ATen/ATen.h>

#include "io/error.h"
#include "residual/depth_routes.h"
#include "residual/sublayer_norm.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

std::string weight_name(int64_t layer) {
  return layer_name(layer) + ".dense.weight";
}

class DenseFormerStream : public ResidualStream {
 public:
  DenseFormerStream(const ParameterStore& parameters, const ResidualConfig& config, const ResidualShape& shape,
                    const at::Tensor& embedding)
      : parameters_(parameters),
        norm_(parameters, config, shape),
        memory_(1, shape.norm_eps, config.implementation),
        x_(embedding) {
    memory_.append(embedding);
  }

  AttentionInputs attention_inputs(int64_t layer) override {
    at::Tensor h = norm_(x_, input_norm_name(layer));
    return {h, h, h};
  }
  void write_attention(int64_t, const at::Tensor& output) override { x_ = x_ + output; }
  MlpInputs mlp_inputs(int64_t layer) override {
    at::Tensor h = norm_(x_, mlp_norm_name(layer));
    return {h, h};
  }
  void write_mlp(int64_t layer, const at::Tensor& output) override {
    memory_.append(x_ + output);
    x_ = memory_.mix(parameters_.get(weight_name(layer)).unsqueeze(0))[0];
  }
  at::Tensor output() override { return x_; }

 private:
  const ParameterStore& parameters_;
  SublayerNorm norm_;
  DepthMemory memory_;
  at::Tensor x_;
};

class DenseFormer : public Residual {
 public:
  DenseFormer(ResidualConfig config, const ResidualShape& shape) : config_(std::move(config)), shape_(shape) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({input_norm_name(layer), {shape_.width}, Initialisation::kOne});
      specs.push_back({mlp_norm_name(layer), {shape_.width}, Initialisation::kOne});
      specs.push_back({weight_name(layer), {layer + 2}, Initialisation::kNewestSource});
    }
    return specs;
  }

  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe&) const override {
    return std::make_unique<DenseFormerStream>(parameters, config_, shape_, embedding);
  }

  ResidualCost cost() const override {
    auto width = static_cast<double>(shape_.width);
    ResidualCost cost;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      auto sources = static_cast<double>(layer + 2);
      cost.flops += (2 + 2 * sources) * width;  // two sums, and the mix
      cost.values += (2 * 3 + sources + 1) * width;
    }
    return cost;
  }

  std::vector<std::string> source_names(const std::string&) const override { return {}; }

 private:
  ResidualConfig config_;
  ResidualShape shape_;
};

}  // namespace

std::unique_ptr<Residual> make_denseformer(const ResidualConfig& config, const ResidualShape& shape) {
  check_depth_reads(config, shape, shape.layers + 1);
  return std::make_unique<DenseFormer>(config, shape);
}

}  // namespace depthroute
