// Delta AttnRes and Delta Block (arXiv 2605.18855): the ordinary running sum x stays, and a depth read over what was
// added to it corrects every sublayer's input:
//
//   sublayer input = norm(x + depth_read(sources)); x = x + sublayer output
//
// The sources are the embedding, then every sublayer's output (Delta AttnRes) or the sum of each completed block's
// outputs (Delta Block). Layer 0's attention reads x alone, as in the authors' code: its depth-read parameters exist
// and get no gradient. There is no final read. Routes and heads work as in attention_residual.cc.
#include <ATen/ATen.h>

#include "io/error.h"
#include "io/format.h"
#include "residual/depth_routes.h"
#include "residual/sublayer_norm.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

int64_t sublayers_per_block(const ResidualConfig& config) {
  return config.layers_per_block == 0 ? 1 : 2 * config.layers_per_block;
}

class DeltaStream : public ResidualStream {
 public:
  DeltaStream(const ParameterStore& parameters, const ResidualConfig& config, const ResidualShape& shape,
              const at::Tensor& embedding, DepthProbe probe)
      : config_(config),
        norm_(parameters, config, shape),
        reader_(parameters, config, shape.norm_eps, std::move(probe)),
        x_(embedding) {
    reader_.memory().append(embedding);
  }

  AttentionInputs attention_inputs(int64_t layer) override {
    std::string name = input_norm_name(layer);
    if (layer == 0) return attention_inputs_of({norm_(x_, name)}, config_.attention_roles);
    return attention_inputs_of(read(attention_site(layer), config_.attention_roles, name), config_.attention_roles);
  }

  MlpInputs mlp_inputs(int64_t layer) override {
    return mlp_inputs_of(read(mlp_site(layer), config_.mlp_roles, mlp_norm_name(layer)), config_.mlp_roles);
  }

  void write_attention(int64_t layer, const at::Tensor& output) override { write(2 * layer, output); }
  void write_mlp(int64_t layer, const at::Tensor& output) override { write(2 * layer + 1, output); }
  at::Tensor output() override { return x_; }

 private:
  std::vector<at::Tensor> read(const std::string& site, const std::vector<std::string>& roles,
                               const std::string& norm_name) {
    std::vector<at::Tensor> mixtures = reader_.read(site, roles, reader_.queries(site, roles));
    for (at::Tensor& mixture : mixtures) mixture = norm_(x_ + mixture, norm_name);
    return mixtures;
  }

  void write(int64_t sublayer, const at::Tensor& output) {
    x_ = x_ + output;
    block_ = block_.defined() ? block_ + output : output;
    if ((sublayer + 1) % sublayers_per_block(config_) != 0) return;
    reader_.memory().append(block_);
    block_ = at::Tensor();
  }

  const ResidualConfig& config_;
  SublayerNorm norm_;
  DepthReader reader_;
  at::Tensor x_, block_;
};

class DeltaResidual : public Residual {
 public:
  DeltaResidual(ResidualConfig config, const ResidualShape& shape) : config_(std::move(config)), shape_(shape) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({input_norm_name(layer), {shape_.width}, Initialisation::kOne});
      add_read_parameters(attention_site(layer), config_.attention_roles, shape_.width, &specs);
      specs.push_back({mlp_norm_name(layer), {shape_.width}, Initialisation::kOne});
      add_read_parameters(mlp_site(layer), config_.mlp_roles, shape_.width, &specs);
    }
    return specs;
  }

  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe& probe) const override {
    return std::make_unique<DeltaStream>(parameters, config_, shape_, embedding, probe);
  }

  ResidualCost cost() const override {
    auto width = static_cast<double>(shape_.width);
    int64_t per_block = sublayers_per_block(config_);
    ResidualCost cost;
    for (int64_t sublayer = 0; sublayer < 2 * shape_.layers; ++sublayer) {
      const auto& roles = sublayer % 2 == 0 ? config_.attention_roles : config_.mlp_roles;
      auto sources = static_cast<double>(1 + sublayer / per_block), routes = static_cast<double>(roles.size());
      if (sublayer > 0) {
        // The mixtures, and x added to each.
        cost.flops += routes * (sources * 4 + 1) * width;
        cost.values += (sources + 1 + routes) * width;
      }
      // x, and from a block's second sublayer on the block's sum.
      double sums = sublayer % per_block == 0 ? 1 : 2;
      cost.flops += sums * width;
      cost.values += sums * 3 * width;
    }
    // The norm of each source is computed once.
    cost.flops += 2 * width * static_cast<double>(1 + (2 * shape_.layers - 1) / per_block);
    return cost;
  }

  std::vector<std::string> source_names(const std::string& site) const override {
    int64_t sublayer = sublayers_before(site, shape_.layers);
    if (sublayer == 0 || sublayer == 2 * shape_.layers) return {};
    std::vector<std::string> names = {"embedding"};
    for (int64_t i = 0; i < sublayer / sublayers_per_block(config_); ++i) {
      names.push_back(config_.layers_per_block == 0
                          ? format_text("layer {} {}", i / 2, i % 2 == 0 ? "attention" : "mlp")
                          : format_text("block {}", i + 1));
    }
    return names;
  }

 private:
  ResidualConfig config_;
  ResidualShape shape_;
};

}  // namespace

std::unique_ptr<Residual> make_delta_residual(const ResidualConfig& config, const ResidualShape& shape) {
  check_depth_reads(config, shape, 1 + (2 * shape.layers - 1) / sublayers_per_block(config));
  if (config.control != DepthControl::kNone) fail_input("{} has no controls", config.variant);
  return std::make_unique<DeltaResidual>(config, shape);
}

}  // namespace depthroute
