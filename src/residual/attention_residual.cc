// Attention residuals: one implementation of Block AttnRes and Full AttnRes (arXiv 2603.15031), Role-Decoupled AttnRes
// with its controls (arXiv 2608.01075), the fully split forms and depth reads with heads.
//
// The memory holds completed sources: the embedding, then the sum of the sublayer outputs of each block (without the
// embedding). The running sum of the current block is a source too, from the block's second sublayer on. Each
// sublayer's input is a depth read over all of them; the attention sublayer does one read per route, and routes share
// the sources, the key norm and the input norm.
#include <ATen/ATen.h>

#include <algorithm>

#include "io/error.h"
#include "io/format.h"
#include "residual/depth_routes.h"
#include "residual/sublayer_norm.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

const std::string kOutputSite = "model";

// The roles whose queries are parameters: the controls tied and frozen-V take the value route's query away.
std::vector<std::string> learned_attention_roles(const ResidualConfig& config) {
  if (config.control == DepthControl::kTied || config.control == DepthControl::kFrozenValue)
    return {config.attention_roles[0]};
  return config.attention_roles;
}

// When sublayers end a block and how many sources a read sees: the one place where blocks are counted.
struct BlockSchedule {
  int64_t sublayers_per_block;

  explicit BlockSchedule(const ResidualConfig& config)
      : sublayers_per_block(config.layers_per_block == 0 ? 1 : 2 * config.layers_per_block) {}
  bool ends_block(int64_t sublayer) const { return (sublayer + 1) % sublayers_per_block == 0; }
  int64_t completed(int64_t sublayer) const { return 1 + sublayer / sublayers_per_block; }
  bool has_partial(int64_t sublayer) const { return sublayer % sublayers_per_block != 0; }
  int64_t sources(int64_t sublayer) const { return completed(sublayer) + (has_partial(sublayer) ? 1 : 0); }
};

class AttentionResidualStream : public ResidualStream {
 public:
  AttentionResidualStream(const ParameterStore& parameters, const ResidualConfig& config,
                          const ResidualShape& shape, const at::Tensor& embedding, DepthProbe probe)
      : config_(config),
        layers_(shape.layers),
        schedule_(config),
        norm_(parameters, config, shape),
        reader_(parameters, config, shape.norm_eps, std::move(probe)) {
    reader_.memory().append(embedding);
  }

  AttentionInputs attention_inputs(int64_t layer) override {
    std::vector<at::Tensor> mixtures = read(2 * layer);
    if (config_.control == DepthControl::kAverage) mixtures = {(mixtures[0] + mixtures[1]) / 2};
    normalise(input_norm_name(layer), &mixtures);
    return attention_inputs_of(mixtures, config_.attention_roles);
  }

  MlpInputs mlp_inputs(int64_t layer) override {
    std::vector<at::Tensor> mixtures = read(2 * layer + 1);
    normalise(mlp_norm_name(layer), &mixtures);
    return mlp_inputs_of(mixtures, config_.mlp_roles);
  }

  void write_attention(int64_t layer, const at::Tensor& output) override { write(2 * layer, output); }
  void write_mlp(int64_t layer, const at::Tensor& output) override { write(2 * layer + 1, output); }

  at::Tensor output() override {
    return reader_.read(kOutputSite, {"out"}, reader_.queries(kOutputSite, {"out"}))[0];
  }

 private:
  void normalise(const std::string& name, std::vector<at::Tensor>* mixtures) const {
    for (at::Tensor& mixture : *mixtures) mixture = norm_(mixture, name);
  }

  static std::string site_of(int64_t sublayer) {
    return sublayer % 2 == 0 ? attention_site(sublayer / 2) : mlp_site(sublayer / 2);
  }

  std::vector<at::Tensor> queries(int64_t sublayer) const {
    std::string site = site_of(sublayer);
    if (sublayer % 2 == 1) return reader_.queries(site, config_.mlp_roles);
    std::vector<at::Tensor> route_queries = reader_.queries(site, learned_attention_roles(config_));
    // Both routes are read even where they share a query, so that the control differs from RD-AttnRes in nothing
    // else.
    if (config_.control == DepthControl::kTied) route_queries.push_back(route_queries[0]);
    // A query of zero gives every source the same score, and so exactly uniform weights.
    if (config_.control == DepthControl::kFrozenValue)
      route_queries.push_back(at::zeros_like(route_queries[0].detach()));
    return route_queries;
  }

  // Queries do not depend on the hidden state, so all reads of a block are known when it begins.
  void plan_block(int64_t first) {
    planned_.clear();
    int64_t end = std::min(first + schedule_.sublayers_per_block, 2 * layers_);
    for (int64_t sublayer = first; sublayer < end; ++sublayer)
      planned_.push_back(reader_.planned(site_of(sublayer), queries(sublayer)));
    reader_.memory().plan(planned_);
  }

  std::vector<at::Tensor> read(int64_t sublayer) {
    if (!schedule_.has_partial(sublayer)) plan_block(sublayer);
    const PlannedRead& planned = planned_[static_cast<size_t>(sublayer % schedule_.sublayers_per_block)];
    const std::vector<std::string>& roles = sublayer % 2 == 0 ? config_.attention_roles : config_.mlp_roles;
    return reader_.read(site_of(sublayer), roles, planned.queries);
  }

  void write(int64_t sublayer, const at::Tensor& output) {
    partial_ = partial_.defined() ? partial_ + output : output;
    if (schedule_.ends_block(sublayer)) {
      reader_.memory().append(partial_);
      partial_ = at::Tensor();
    }
    reader_.memory().set_partial(partial_);
  }

  const ResidualConfig& config_;
  int64_t layers_;
  BlockSchedule schedule_;
  SublayerNorm norm_;
  DepthReader reader_;
  at::Tensor partial_;
  std::vector<PlannedRead> planned_;  // the reads of the current block
};

class AttentionResidual : public Residual {
 public:
  AttentionResidual(ResidualConfig config, const ResidualShape& shape)
      : config_(std::move(config)), shape_(shape), schedule_(config_) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({input_norm_name(layer), {shape_.width}, Initialisation::kOne});
      add_read_parameters(attention_site(layer), learned_attention_roles(config_), shape_.width, &specs);
      specs.push_back({mlp_norm_name(layer), {shape_.width}, Initialisation::kOne});
      add_read_parameters(mlp_site(layer), config_.mlp_roles, shape_.width, &specs);
    }
    add_read_parameters(kOutputSite, {"out"}, shape_.width, &specs);
    return specs;
  }

  std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                        const DepthProbe& probe) const override {
    return std::make_unique<AttentionResidualStream>(parameters, config_, shape_, embedding, probe);
  }

  ResidualCost cost() const override {
    auto width = static_cast<double>(shape_.width);
    ResidualCost cost;
    auto add_read = [&](int64_t sublayer, size_t route_count) {
      auto sources = static_cast<double>(schedule_.sources(sublayer)), routes = static_cast<double>(route_count);
      cost.flops += sources * routes * 4 * width;  // a dot product and a weighted sum per source and route
      cost.values += (sources + routes) * width;
    };
    for (int64_t sublayer = 0; sublayer < 2 * shape_.layers; ++sublayer) {
      add_read(sublayer, sublayer % 2 == 0 ? config_.attention_roles.size() : config_.mlp_roles.size());
      // The first output of a block is a source as it is; later ones are added to the running sum.
      if (schedule_.has_partial(sublayer)) {
        cost.flops += width;
        cost.values += 3 * width;
      }
    }
    add_read(2 * shape_.layers, 1);
    // The norm of each source is computed once.
    cost.flops += 2 * width * static_cast<double>(2 * shape_.layers + 1);
    return cost;
  }

  std::vector<std::string> source_names(const std::string& site) const override {
    int64_t sublayer = sublayers_before(site, shape_.layers);
    std::vector<std::string> names = {"embedding"};
    for (int64_t block = 1; block < schedule_.completed(sublayer); ++block) {
      if (config_.layers_per_block == 0) {
        names.push_back(format_text("layer {} {}", (block - 1) / 2, (block - 1) % 2 == 0 ? "attention" : "mlp"));
      } else {
        names.push_back(format_text("block {}", block));
      }
    }
    if (schedule_.has_partial(sublayer)) names.emplace_back("partial");
    return names;
  }

 private:
  ResidualConfig config_;
  ResidualShape shape_;
  BlockSchedule schedule_;
};

}  // namespace

std::unique_ptr<Residual> make_attention_residual(const ResidualConfig& config, const ResidualShape& shape) {
  check_depth_reads(config, shape, BlockSchedule(config).sources(2 * shape.layers));
  if (config.control != DepthControl::kNone && config.attention_roles.size() != 2) {
    fail_input("a control needs two attention routes, such as 'qk|v'; there are {}", config.attention_roles.size());
  }
  return std::make_unique<AttentionResidual>(config, shape);
}

}  // namespace depthroute
