#include "residual/depth_routes.h"

namespace depthroute {

std::string attention_site(int64_t layer) {
  return layer_name(layer) + ".self_attn";
}

std::string mlp_site(int64_t layer) {
  return layer_name(layer) + ".mlp";
}

int64_t sublayers_before(const std::string& site, int64_t layers) {
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (site == attention_site(layer)) return 2 * layer;
    if (site == mlp_site(layer)) return 2 * layer + 1;
  }
  return 2 * layers;
}

std::string query_name(const std::string& site, const std::string& role) {
  return site + ".depth_read.query." + role;
}

std::string key_norm_name(const std::string& site) {
  return site + ".depth_read.norm.weight";
}

std::string input_norm_name(int64_t layer) {
  return layer_name(layer) + ".input_layernorm.weight";
}

std::string mlp_norm_name(int64_t layer) {
  return layer_name(layer) + ".post_attention_layernorm.weight";
}

void check_depth_reads(const ResidualConfig& config, const ResidualShape& shape, int64_t most_sources) {
  if (config.layers_per_block < 0)
    fail_input("layers_per_block is {}, expected 0 (no blocks) or more", config.layers_per_block);
  if (config.depth_heads < 1 || shape.width % config.depth_heads != 0) {
    fail_input("depth_heads {} does not divide the width {}", config.depth_heads, shape.width);
  }
  if (most_sources > kMaxDepthSources) {
    fail_input("{} layers in blocks of {} make {} sources, more than {}: use longer blocks", shape.layers,
               config.layers_per_block, most_sources, kMaxDepthSources);
  }
}

void add_read_parameters(const std::string& site, const std::vector<std::string>& roles, int64_t width,
                         std::vector<ParameterSpec>* specs) {
  for (const std::string& role : roles) specs->push_back({query_name(site, role), {width}, Initialisation::kZero});
  specs->push_back({key_norm_name(site), {width}, Initialisation::kOne});
}

std::vector<at::Tensor> DepthReader::queries(const std::string& site, const std::vector<std::string>& roles) const {
  std::vector<at::Tensor> result;
  for (const std::string& role : roles) result.push_back(parameters_.get(query_name(site, role)));
  return result;
}

std::vector<at::Tensor> DepthReader::read(const std::string& site, const std::vector<std::string>& roles,
                                          const std::vector<at::Tensor>& queries) {
  DepthRead result = memory_.read(queries, parameters_.get(key_norm_name(site)));
  if (probe_) {
    for (size_t route = 0; route < roles.size(); ++route)
      probe_(site, roles[route], result.probabilities.select(0, static_cast<int64_t>(route)));
  }
  return result.mixtures;
}

AttentionInputs attention_inputs_of(const std::vector<at::Tensor>& routes, const std::vector<std::string>& roles) {
  auto input_of = [&](char role) {
    for (size_t route = 0; route < routes.size(); ++route) {
      if (roles[route].find(role) != std::string::npos) return routes[route];
    }
    return routes[0];
  };
  return {input_of('q'), input_of('k'), input_of('v')};
}

MlpInputs mlp_inputs_of(const std::vector<at::Tensor>& routes, const std::vector<std::string>& roles) {
  bool gate_first = roles[0] != "u";
  return gate_first ? MlpInputs{routes.front(), routes.back()} : MlpInputs{routes.back(), routes.front()};
}

}  // namespace depthroute
