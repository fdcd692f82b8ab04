// The sizes of a model and its residual variant, from a preset or from sizes, and their JSON form in a checkpoint's
// config.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "residual/residual.h"

namespace depthroute {

struct ModelConfig {
  int64_t layers = 0, width = 0, heads = 0, mlp_hidden = 0, vocabulary = 0;
  int64_t context = 0;  // the longest sequence it is trained on
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  ResidualConfig residual;

  int64_t head_width() const { return width / heads; }
  ResidualShape residual_shape() const { return {layers, width, norm_eps}; }
};

// "s" and "m" are the paper's 120M and 343M models (arXiv 2608.01075); "tiny" is for tests, "micro" and "mini" for
// studies on a CPU.
const std::vector<std::string>& preset_names();
// InputError naming the nearest name for an unknown preset. The variant is "standard".
ModelConfig preset(const std::string& name);

// InputError for sizes that are not positive, do not divide each other or are absurd.
void check_model_config(const ModelConfig& config);

// Hugging Face's keys (those of LlamaConfig), and an object "depthroute" with the residual variant. The standard
// variant's is a
// Llama's config.json.
Json model_config_to_json(const ModelConfig& config);
ModelConfig model_config_from_json(const Json& json, const std::string& where);

}  // namespace depthroute
