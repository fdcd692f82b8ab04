// How a layer gets its inputs from what the layers before it wrote. The Transformer knows nothing of variants: in
// each forward pass it asks a ResidualStream for the inputs of a sublayer and hands back the sublayer's output. Every
// variant is one file behind this interface.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/error.h"
#include "ops/depth_memory.h"
#include "residual/parameters.h"

namespace depthroute {

// All tensors [B, T, d], normalised; they may alias each other.
struct AttentionInputs {
  at::Tensor query, key, value;
};
struct MlpInputs {
  at::Tensor gate, up;
};

class ResidualStream {
 public:
  virtual ~ResidualStream() = default;
  // Called for layer 0, 1, ..: attention_inputs, write_attention, mlp_inputs, write_mlp; at the end output once.
  virtual AttentionInputs attention_inputs(int64_t layer) = 0;
  virtual void write_attention(int64_t layer, const at::Tensor& output) = 0;
  virtual MlpInputs mlp_inputs(int64_t layer) = 0;
  virtual void write_mlp(int64_t layer, const at::Tensor& output) = 0;
  // What the final norm and the head read.
  virtual at::Tensor output() = 0;
};

// Sees the weights of every depth read of a pass: the site ("model.layers.3.self_attn", "model.layers.3.mlp" or
// "model"), the role ("qk", "v", "mlp", "out", ..) and the probabilities [N, K, H].
using DepthProbe =
    std::function<void(const std::string& site, const std::string& role, const at::Tensor& probabilities)>;

// What of the model a variant needs to know.
struct ResidualShape {
  int64_t layers = 0, width = 0;
  double norm_eps = 1e-6;
};

enum class DepthControl { kNone, kTied, kAverage, kFrozenValue };

struct ResidualConfig {
  std::string variant = "standard";
  Implementation implementation = Implementation::kFused;  // of depth reads and of all else
  // The keys below apply to variants with depth reads (attention residuals, Delta); named variants set them (see
  // named_residual_config).
  std::vector<std::string> attention_roles;  // a partition of q, k, v: {"qkv"}, {"qk", "v"}, {"q", "k", "v"}, ..
  std::vector<std::string> mlp_roles = {"mlp"};  // or {"g", "u"}: gate and up projections read separately
  int64_t layers_per_block = 0;                  // 0: every sublayer's output is a source of its own
  int64_t depth_heads = 1;
  DepthControl control = DepthControl::kNone;
};

// Cost of the residual path for one token, forward pass, of a schedule that moves every value once: a read of R routes
// over K sources reads K*d and writes R*d values; adding a sublayer's output reads 2*d and writes d.
struct ResidualCost {
  double flops = 0;
  double values = 0;  // read or written; times the element size gives bytes
};

class Residual {
 public:
  virtual ~Residual() = default;
  // Everything the variant owns, including the norms in front of the sublayers, in the order of the layers.
  virtual std::vector<ParameterSpec> parameters() const = 0;
  virtual std::unique_ptr<ResidualStream> begin(const ParameterStore& parameters, const at::Tensor& embedding,
                                                const DepthProbe& probe) const = 0;
  virtual ResidualCost cost() const = 0;
  // Names of the sources that a depth read at a site sees, oldest first; empty for variants without depth reads.
  virtual std::vector<std::string> source_names(const std::string& site) const = 0;
};

// Names of all variants, in the order in which they are explained.
const std::vector<std::string>& variant_names();
// A variant's name that is not one of variant_names().
class UnknownVariantError : public InputError {
 public:
  using InputError::InputError;
};
// The settings of a named variant for a model of `layers` layers. UnknownVariantError naming the nearest name.
ResidualConfig named_residual_config(const std::string& variant, int64_t layers);
// "qk|v" -> {"qk", "v"}; InputError unless it is a partition of q, k, v.
std::vector<std::string> parse_attention_roles(const std::string& text);
// "mlp" or "g|u"; InputError for anything else.
std::vector<std::string> parse_mlp_roles(const std::string& text);
std::string join_roles(const std::vector<std::string>& roles);
// "none", "tied", "average", "frozen-v"
DepthControl parse_control(const std::string& name);
std::string control_name(DepthControl control);

// InputError for settings that contradict each other.
std::unique_ptr<Residual> make_residual(const ResidualConfig& config, const ResidualShape& shape);

}  // namespace depthroute
