#include "model/conversion.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "io/error.h"
#include "model/initialisation.h"

namespace depthroute {
namespace {

void check_sizes(const ModelConfig& source, const ModelConfig& config) {
  auto check = [](const char* key, int64_t a, int64_t b) {
    if (a != b) fail_input("the initial model has model.{} = {}, expected {}", key, a, b);
  };
  check("layers", source.layers, config.layers);
  check("width", source.width, config.width);
  check("heads", source.heads, config.heads);
  check("mlp_hidden", source.mlp_hidden, config.mlp_hidden);
  check("vocabulary", source.vocabulary, config.vocabulary);
  if (source.rope_theta != config.rope_theta || source.norm_eps != config.norm_eps) {
    fail_input("the initial model has model.rope_theta = {} and model.norm_eps = {}, expected {} and {}",
               source.rope_theta, source.norm_eps, config.rope_theta, config.norm_eps);
  }
}

// Does a route of role `whole` feed everything that one of role `part` feeds?
bool covers(const std::string& whole, const std::string& part) {
  if (whole == "mlp") return part == "g" || part == "u";
  return std::all_of(part.begin(), part.end(),
                     [&](char letter) { return whole.find(letter) != std::string::npos; });
}

// The tensor of the source that `name` starts from; empty where there is none.
std::string counterpart(const ParameterStore& source, const std::string& name) {
  if (source.contains(name)) return name;
  const std::string query = ".depth_read.query.";
  if (size_t at = name.find(query); at != std::string::npos) {
    std::string prefix = name.substr(0, at + query.size()), role = name.substr(prefix.size());
    for (const auto& [other, tensor] : source.items()) {
      if (other.starts_with(prefix) && covers(other.substr(prefix.size()), role)) return other;
    }
  }
  const std::string norm = ".input_layernorm.";
  if (size_t at = name.find(norm); at != std::string::npos) {
    std::string whole = name.substr(0, at + norm.size()) + "weight";
    if (source.contains(whole)) return whole;
  }
  return "";
}

}  // namespace

Conversion convert_model(const Transformer& source, const ModelConfig& config, uint64_t seed) {
  check_sizes(source.config(), config);
  std::vector<std::string> copied, initialised;
  std::vector<std::pair<std::string, std::string>> copied_from;
  std::set<std::string> used;
  ParameterStore parameters;
  for (const ParameterSpec& spec : model_parameters(config)) {
    std::string from = counterpart(source.parameters(), spec.name);
    if (from.empty()) {
      initialised.push_back(spec.name);
      parameters.add(spec.name, draw_parameter(spec, seed).requires_grad_());
      continue;
    }
    used.insert(from);
    if (from == spec.name) {
      copied.push_back(from);
    } else {
      copied_from.emplace_back(spec.name, from);
    }
    parameters.add(spec.name, source.parameters().get(from).detach().clone().requires_grad_());
  }
  Conversion conversion{Transformer(config, std::move(parameters)), copied, copied_from, initialised, {}};
  for (const auto& [name, tensor] : source.parameters().items()) {
    if (!used.contains(name)) conversion.left_out.push_back(name);
  }
  return conversion;
}

}  // namespace depthroute
