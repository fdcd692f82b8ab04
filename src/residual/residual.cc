#include "residual/residual.h"

#include <algorithm>

#include "io/error.h"
#include "io/format.h"
#include "io/text.h"
#include "residual/variants.h"

namespace depthroute {
namespace {

constexpr int64_t kDefaultBlocks = 8;  // the paper's number: two layers a block at S, three at M

constexpr DepthControl kControls[] = {DepthControl::kNone, DepthControl::kTied, DepthControl::kAverage,
                                      DepthControl::kFrozenValue};

ResidualConfig attention_residual(const std::string& variant, std::vector<std::string> roles,
                                  int64_t layers_per_block) {
  ResidualConfig config;
  config.variant = variant;
  config.attention_roles = std::move(roles);
  config.layers_per_block = layers_per_block;
  return config;
}

}  // namespace

const std::vector<std::string>& variant_names() {
  static const std::vector<std::string> names = {
      "standard",   "block_attnres", "full_attnres",  "rd_attnres",        "rd_tied",
      "rd_average", "rd_frozen_v",   "split_attnres", "mlp_split_attnres", "mhar",
      "rd_mhar",    "delta_attnres", "delta_block",   "denseformer",       "muddformer"};
  return names;
}

ResidualConfig named_residual_config(const std::string& variant, int64_t layers) {
  int64_t block = std::max<int64_t>(1, (layers + kDefaultBlocks - 1) / kDefaultBlocks);
  const std::vector<std::string> parent = {"qkv"}, decoupled = {"qk", "v"};
  if (variant == "standard" || variant == "denseformer" || variant == "muddformer") {
    ResidualConfig config;
    config.variant = variant;
    return config;
  }
  if (variant == "block_attnres") return attention_residual(variant, parent, block);
  if (variant == "full_attnres" || variant == "delta_attnres") return attention_residual(variant, parent, 0);
  if (variant == "delta_block") return attention_residual(variant, parent, block);
  if (variant == "split_attnres") return attention_residual(variant, {"q", "k", "v"}, block);
  if (variant == "rd_attnres") return attention_residual(variant, decoupled, block);
  if (variant == "mlp_split_attnres") {
    ResidualConfig config = attention_residual(variant, parent, block);
    config.mlp_roles = {"g", "u"};
    return config;
  }
  if (variant == "mhar" || variant == "rd_mhar") {
    ResidualConfig config = attention_residual(variant, variant == "mhar" ? parent : decoupled, block);
    config.depth_heads = 4;
    return config;
  }
  ResidualConfig config = attention_residual(variant, decoupled, block);
  if (variant == "rd_tied") {
    config.control = DepthControl::kTied;
  } else if (variant == "rd_average") {
    config.control = DepthControl::kAverage;
  } else if (variant == "rd_frozen_v") {
    config.control = DepthControl::kFrozenValue;
  } else {
    throw UnknownVariantError(format_text("unknown variant '{}'; did you mean '{}'? Known: {}", variant,
                                          nearest_name(variant, variant_names()),
                                          join_text(variant_names(), ", ")));
  }
  return config;
}

std::vector<std::string> parse_attention_roles(const std::string& text) {
  std::vector<std::string> roles(1);
  for (char letter : text) {
    if (letter == '|') {
      roles.emplace_back();
    } else {
      roles.back() += letter;
    }
  }
  const std::string all = "qkv";
  std::string letters = format_text("{}", join_text(roles, ""));
  bool empty = std::any_of(roles.begin(), roles.end(), [](const std::string& role) { return role.empty(); });
  if (empty || !std::is_permutation(letters.begin(), letters.end(), all.begin(), all.end())) {
    fail_input("attention routes '{}' are not a partition of q, k and v such as 'qkv', 'qk|v' or 'q|k|v'", text);
  }
  return roles;
}

std::vector<std::string> parse_mlp_roles(const std::string& text) {
  if (text == "mlp") return {"mlp"};
  if (text == "g|u") return {"g", "u"};
  fail_input("MLP routes '{}' are unknown, expected 'mlp' or 'g|u'", text);
}

std::string join_roles(const std::vector<std::string>& roles) {
  return format_text("{}", join_text(roles, "|"));
}

DepthControl parse_control(const std::string& name) {
  std::vector<std::string> known;
  for (DepthControl control : kControls) {
    known.push_back(control_name(control));
    if (known.back() == name) return control;
  }
  fail_input("unknown control '{}'; did you mean '{}'? Known: {}", name, nearest_name(name, known),
             join_text(known, ", "));
}

std::string control_name(DepthControl control) {
  switch (control) {
    case DepthControl::kTied:
      return "tied";
    case DepthControl::kAverage:
      return "average";
    case DepthControl::kFrozenValue:
      return "frozen-v";
    case DepthControl::kNone:
      break;
  }
  return "none";
}

std::unique_ptr<Residual> make_residual(const ResidualConfig& config, const ResidualShape& shape) {
  if (config.variant == "standard") return make_standard_residual(config, shape);
  if (config.variant == "delta_attnres" || config.variant == "delta_block")
    return make_delta_residual(config, shape);
  if (config.variant == "denseformer") return make_denseformer(config, shape);
  if (config.variant == "muddformer") return make_muddformer(config, shape);
  return make_attention_residual(config, shape);
}

}  // namespace depthroute
