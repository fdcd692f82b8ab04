// Attention residuals: one implementation of Block AttnRes and Full AttnRes (arXiv 2603.15031), Role-Decoupled
// AttnRes with its
// controls (arXiv 2608.01075), the fully split forms and depth reads with heads.
//
// The memory holds completed sources: the embedding, then the sum of the sublayer outputs of each block (without
// the embedding).
// The running sum of the current block is a source too, from the block's second sublayer on. Each sublayer's input
// is a depth read
// over all of them; the attention sublayer does one read per route, and routes share the sources, the key norm and
// the input norm.
#include <ATen/ATen.h>

#include "io/error.h"
#include "io/format.h"
#include "ops/elementary.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

std::string attention_site(int64_t layer) {
  return layer_name(layer) + ".self_attn";
}
std::string mlp_site(int64_t layer) {
  return layer_name(layer) + ".mlp";
}
const std::string kOutputSite = "model";

std::string query_name(const std::string& site, const std::string& role) {
  return site + ".depth_read.query." + role;
}
std::string key_norm_name(const std::string& site) {
  return site + ".depth_read.norm.weight";
}

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
      : parameters_(parameters),
        config_(config),
        schedule_(config),
        eps_(shape.norm_eps),
        probe_(std::move(probe)),
        memory_(config.depth_heads, shape.norm_eps, config.implementation) {
    memory_.append(embedding);
  }

  AttentionInputs attention_inputs(int64_t layer) override {
    std::vector<at::Tensor> mixtures = read_attention(attention_site(layer));
    const at::Tensor& weight = parameters_.get(layer_name(layer) + ".input_layernorm.weight");
    if (config_.control == DepthControl::kAverage) mixtures = {(mixtures[0] + mixtures[1]) / 2};
    for (at::Tensor& mixture : mixtures) mixture = rms_norm(mixture, weight, eps_);
    auto input_of = [&](char role) {
      for (size_t route = 0; route < mixtures.size(); ++route) {
        if (config_.attention_roles[route].find(role) != std::string::npos) return mixtures[route];
      }
      return mixtures[0];  // the average control: one mixture for all roles
    };
    return {input_of('q'), input_of('k'), input_of('v')};
  }

  MlpInputs mlp_inputs(int64_t layer) override {
    std::string site = mlp_site(layer);
    std::vector<at::Tensor> mixtures = read(site, config_.mlp_roles, queries(site, config_.mlp_roles));
    const at::Tensor& weight = parameters_.get(layer_name(layer) + ".post_attention_layernorm.weight");
    for (at::Tensor& mixture : mixtures) mixture = rms_norm(mixture, weight, eps_);
    bool gate_first = config_.mlp_roles[0] != "u";
    return gate_first ? MlpInputs{mixtures.front(), mixtures.back()} : MlpInputs{mixtures.back(), mixtures.front()};
  }

  void write_attention(int64_t layer, const at::Tensor& output) override { write(2 * layer, output); }
  void write_mlp(int64_t layer, const at::Tensor& output) override { write(2 * layer + 1, output); }

  at::Tensor output() override { return read(kOutputSite, {"out"}, queries(kOutputSite, {"out"}))[0]; }

 private:
  std::vector<at::Tensor> queries(const std::string& site, const std::vector<std::string>& roles) const {
    std::vector<at::Tensor> result;
    for (const std::string& role : roles) result.push_back(parameters_.get(query_name(site, role)));
    return result;
  }

  std::vector<at::Tensor> read_attention(const std::string& site) {
    std::vector<at::Tensor> route_queries = queries(site, learned_attention_roles(config_));
    // Both routes are read even where they share a query, so that the control differs from RD-AttnRes in nothing
    // else.
    if (config_.control == DepthControl::kTied) route_queries.push_back(route_queries[0]);
    // A query of zero gives every source the same score, and so exactly uniform weights.
    if (config_.control == DepthControl::kFrozenValue)
      route_queries.push_back(at::zeros_like(route_queries[0].detach()));
    return read(site, config_.attention_roles, route_queries);
  }

  std::vector<at::Tensor> read(const std::string& site, const std::vector<std::string>& roles,
                               const std::vector<at::Tensor>& route_queries) {
    DepthRead result = memory_.read(route_queries, parameters_.get(key_norm_name(site)));
    if (probe_) {
      for (size_t route = 0; route < roles.size(); ++route) {
        probe_(site, roles[route], result.probabilities.select(0, static_cast<int64_t>(route)));
      }
    }
    return result.mixtures;
  }

  void write(int64_t sublayer, const at::Tensor& output) {
    partial_ = partial_.defined() ? partial_ + output : output;
    if (schedule_.ends_block(sublayer)) {
      memory_.append(partial_);
      partial_ = at::Tensor();
    }
    memory_.set_partial(partial_);
  }

  const ParameterStore& parameters_;
  const ResidualConfig& config_;
  BlockSchedule schedule_;
  double eps_;
  DepthProbe probe_;
  DepthMemory memory_;
  at::Tensor partial_;
};

class AttentionResidual : public Residual {
 public:
  AttentionResidual(ResidualConfig config, const ResidualShape& shape)
      : config_(std::move(config)), shape_(shape), schedule_(config_) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> specs;
    std::vector<int64_t> vector = {shape_.width};
    auto add_read = [&](const std::string& site, const std::vector<std::string>& roles) {
      // Queries of zero: every model starts from the uniform mixture of its sources.
      for (const std::string& role : roles)
        specs.push_back({query_name(site, role), vector, Initialisation::kZero});
      specs.push_back({key_norm_name(site), vector, Initialisation::kOne});
    };
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      specs.push_back({layer_name(layer) + ".input_layernorm.weight", vector, Initialisation::kOne});
      add_read(attention_site(layer), learned_attention_roles(config_));
      specs.push_back({layer_name(layer) + ".post_attention_layernorm.weight", vector, Initialisation::kOne});
      add_read(mlp_site(layer), config_.mlp_roles);
    }
    add_read(kOutputSite, {"out"});
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
    int64_t sublayer = sublayer_of(site);
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
  int64_t sublayer_of(const std::string& site) const {
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      if (site == attention_site(layer)) return 2 * layer;
      if (site == mlp_site(layer)) return 2 * layer + 1;
    }
    return 2 * shape_.layers;
  }

  ResidualConfig config_;
  ResidualShape shape_;
  BlockSchedule schedule_;
};

void check(const ResidualConfig& config, const ResidualShape& shape) {
  if (config.layers_per_block < 0)
    fail_input("layers_per_block is {}, expected 0 (no blocks) or more", config.layers_per_block);
  if (config.depth_heads < 1 || shape.width % config.depth_heads != 0) {
    fail_input("depth_heads {} does not divide the width {}", config.depth_heads, shape.width);
  }
  if (config.control != DepthControl::kNone && config.attention_roles.size() != 2) {
    fail_input("a control needs two attention routes, such as 'qk|v'; there are {}", config.attention_roles.size());
  }
  int64_t sources = BlockSchedule(config).sources(2 * shape.layers);
  if (sources > kMaxDepthSources) {
    fail_input("{} layers in blocks of {} make {} sources, more than {}: use longer blocks", shape.layers,
               config.layers_per_block, sources, kMaxDepthSources);
  }
}

}  // namespace

std::unique_ptr<Residual> make_attention_residual(const ResidualConfig& config, const ResidualShape& shape) {
  check(config, shape);
  return std::make_unique<AttentionResidual>(config, shape);
}

}  // namespace depthroute
