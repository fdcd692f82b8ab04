#include "model/model_config.h"

#include <map>

#include "io/format.h"
#include "io/text.h"

namespace depthroute {
namespace {

ModelConfig sizes(int64_t layers, int64_t width, int64_t heads, int64_t mlp_hidden, int64_t vocabulary,
                  int64_t context) {
  ModelConfig config;
  config.layers = layers;
  config.width = width;
  config.heads = heads;
  config.mlp_hidden = mlp_hidden;
  config.vocabulary = vocabulary;
  config.context = context;
  return config;
}

const std::map<std::string, ModelConfig>& presets() {
  static const std::map<std::string, ModelConfig> all = {
      {"tiny", sizes(4, 32, 2, 96, 256, 32)},       {"micro", sizes(8, 64, 2, 192, 2048, 128)},
      {"mini", sizes(8, 128, 2, 640, 4096, 256)},   {"s", sizes(16, 576, 9, 2880, 32768, 1024)},
      {"m", sizes(24, 832, 13, 4160, 32768, 1024)},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"tiny", "micro", "mini", "s", "m"};
  return names;
}

ModelConfig preset(const std::string& name) {
  auto found = presets().find(name);
  if (found == presets().end()) {
    fail_input("unknown preset '{}'; did you mean '{}'? Known: {}", name, nearest_name(name, preset_names()),
               join_text(preset_names(), ", "));
  }
  return found->second;
}

void check_model_config(const ModelConfig& config) {
  // Far above any model this is for; keeps products of sizes within 64 bits and an absurd size from being
  // allocated.
  constexpr int64_t kMaxExtent = int64_t{1} << 20;
  auto check = [&](const char* name, int64_t value) {
    int64_t most = std::string_view(name) == "layers" ? 4096 : kMaxExtent;
    if (value < 1 || value > most) fail_input("model.{} is {}, expected 1 to {}", name, value, most);
  };
  check("layers", config.layers);
  check("width", config.width);
  check("heads", config.heads);
  check("mlp_hidden", config.mlp_hidden);
  check("vocabulary", config.vocabulary);
  check("context", config.context);
  if (config.width % config.heads != 0)
    fail_input("model.heads {} does not divide model.width {}", config.heads, config.width);
  if (config.head_width() % 2 != 0) {
    fail_input("model.width / model.heads is {}, expected an even number (rotary embedding turns pairs)",
               config.head_width());
  }
  if (!(config.rope_theta > 1 && config.rope_theta < 1e12))
    fail_input("model.rope_theta is {}, expected more than 1 and less than 1e12", config.rope_theta);
  if (!(config.norm_eps > 0 && config.norm_eps < 1))
    fail_input("model.norm_eps is {}, expected more than 0 and less than 1", config.norm_eps);
  make_residual(config.residual, config.residual_shape());
}

Json model_config_to_json(const ModelConfig& config) {
  Json json = {{"architectures", {"LlamaForCausalLM"}},
               {"model_type", "llama"},
               {"vocab_size", config.vocabulary},
               {"hidden_size", config.width},
               {"intermediate_size", config.mlp_hidden},
               {"num_hidden_layers", config.layers},
               {"num_attention_heads", config.heads},
               {"num_key_value_heads", config.heads},
               {"max_position_embeddings", config.context},
               {"rms_norm_eps", config.norm_eps},
               {"rope_theta", config.rope_theta},
               {"hidden_act", "silu"},
               {"tie_word_embeddings", true},
               {"attention_bias", false},
               {"mlp_bias", false},
               {"torch_dtype", "float32"}};
  const ResidualConfig& residual = config.residual;
  if (residual.variant != "standard") {
    // Not a Llama: a loader that does not know the variant must not take it for one.
    json["architectures"] = {"DepthrouteForCausalLM"};
    json["model_type"] = "depthroute";
  }
  json["depthroute"] = {{"variant", residual.variant}};
  if (!residual.attention_roles.empty()) {
    json["depthroute"]["attention_routes"] = join_roles(residual.attention_roles);
    json["depthroute"]["mlp_routes"] = join_roles(residual.mlp_roles);
    json["depthroute"]["layers_per_block"] = residual.layers_per_block;
    json["depthroute"]["depth_heads"] = residual.depth_heads;
    json["depthroute"]["control"] = control_name(residual.control);
  }
  return json;
}

ModelConfig model_config_from_json(const Json& json, const std::string& where) {
  ModelConfig config;
  config.vocabulary = json_get<int64_t>(json, "vocab_size", where);
  config.width = json_get<int64_t>(json, "hidden_size", where);
  config.mlp_hidden = json_get<int64_t>(json, "intermediate_size", where);
  config.layers = json_get<int64_t>(json, "num_hidden_layers", where);
  config.heads = json_get<int64_t>(json, "num_attention_heads", where);
  config.context = json_get<int64_t>(json, "max_position_embeddings", where);
  config.norm_eps = json_get<double>(json, "rms_norm_eps", where);
  config.rope_theta = json_get<double>(json, "rope_theta", where);
  auto own = json_get<Json>(json, "depthroute", where);
  config.residual = named_residual_config(json_get<std::string>(own, "variant", where), config.layers);
  if (!config.residual.attention_roles.empty()) {
    config.residual.attention_roles = parse_attention_roles(json_get<std::string>(own, "attention_routes", where));
    config.residual.mlp_roles = parse_mlp_roles(json_get<std::string>(own, "mlp_routes", where));
    config.residual.layers_per_block = json_get<int64_t>(own, "layers_per_block", where);
    config.residual.depth_heads = json_get<int64_t>(own, "depth_heads", where);
    config.residual.control = parse_control(json_get<std::string>(own, "control", where));
  }
  check_model_config(config);
  return config;
}

}  // namespace depthroute
