#include "model/transformer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "io/error.h"
#include "io/format.h"
#include "model/initialisation.h"
#include "ops/attention.h"

namespace depthroute {
namespace {

const std::string kEmbedding = "model.embed_tokens.weight", kFinalNorm = "model.norm.weight";
constexpr double kEmbeddingDeviation = 0.02;

std::vector<ParameterSpec> layer_matrices(const ModelConfig& config, int64_t layer) {
  std::string name = layer_name(layer);
  // 1 / sqrt(fan in); the two projections that write to the residual path are smaller by sqrt(2 L), so that the sum
  // of all
  // sublayers starts with the variance of one.
  double output_scale = 1 / std::sqrt(2.0 * static_cast<double>(config.layers));
  auto matrix = [&](const std::string& suffix, int64_t rows, int64_t columns, double scale) -> ParameterSpec {
    return {
        name + suffix, {rows, columns}, Initialisation::kNormal, scale / std::sqrt(static_cast<double>(columns))};
  };
  int64_t d = config.width, m = config.mlp_hidden;
  return {
      matrix(".self_attn.q_proj.weight", d, d, 1),        matrix(".self_attn.k_proj.weight", d, d, 1),
      matrix(".self_attn.v_proj.weight", d, d, 1),        matrix(".self_attn.o_proj.weight", d, d, output_scale),
      matrix(".mlp.gate_proj.weight", m, d, 1),           matrix(".mlp.up_proj.weight", m, d, 1),
      matrix(".mlp.down_proj.weight", d, m, output_scale)};
}

}  // namespace

std::vector<ParameterSpec> model_parameters(const ModelConfig& config) {
  std::vector<ParameterSpec> specs;
  specs.push_back({kEmbedding, {config.vocabulary, config.width}, Initialisation::kNormal, kEmbeddingDeviation});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (ParameterSpec& spec : layer_matrices(config, layer)) specs.push_back(std::move(spec));
  }
  for (ParameterSpec& spec : make_residual(config.residual, config.residual_shape())->parameters()) {
    specs.push_back(std::move(spec));
  }
  specs.push_back({kFinalNorm, {config.width}, Initialisation::kOne, 0});
  return specs;
}

Transformer::Transformer(const ModelConfig& config, uint64_t seed)
    : config_(config), residual_(make_residual(config.residual, config.residual_shape())) {
  check_model_config(config);
  for (const ParameterSpec& spec : model_parameters(config)) {
    parameters_.add(spec.name, draw_parameter(spec, seed).requires_grad_());
  }
}

Transformer::Transformer(const ModelConfig& config, ParameterStore parameters)
    : config_(config),
      parameters_(std::move(parameters)),
      residual_(make_residual(config.residual, config.residual_shape())) {
  check_model_config(config);
  std::vector<ParameterSpec> specs = model_parameters(config);
  for (const ParameterSpec& spec : specs) {
    if (parameters_.get(spec.name).sizes() != at::IntArrayRef(spec.shape)) {
      fail_run("parameter '{}' has shape [{}], expected [{}]", spec.name,
               join_text(parameters_.get(spec.name).sizes(), ", "), join_text(spec.shape, ", "));
    }
  }
  if (parameters_.items().size() != specs.size()) {
    fail_run("{} parameters given, the model has {}", parameters_.items().size(), specs.size());
  }
}

at::Tensor Transformer::hidden(const at::Tensor& token_ids, const DepthProbe& probe) const {
  const RopeTable& rope = rope_table(token_ids.size(1));
  at::Tensor embedding = at::embedding(parameters_.get(kEmbedding), token_ids);
  std::unique_ptr<ResidualStream> stream = residual_->begin(parameters_, embedding, probe);
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    stream->write_attention(layer, attention(layer, stream->attention_inputs(layer), rope));
    stream->write_mlp(layer, mlp(layer, stream->mlp_inputs(layer)));
  }
  return rms_norm(stream->output(), parameters_.get(kFinalNorm), config_.norm_eps, implementation());
}

at::Tensor Transformer::logits(const at::Tensor& token_ids, const DepthProbe& probe) const {
  return at::linear(head_operand(hidden(token_ids, probe)), head_operand(parameters_.get(kEmbedding)));
}

at::Tensor Transformer::loss_sum(const at::Tensor& token_ids, const at::Tensor& targets,
                                 const DepthProbe& probe) const {
  return cross_entropy_sum(head_operand(hidden(token_ids, probe).flatten(0, 1)),
                           head_operand(parameters_.get(kEmbedding)), targets.flatten(), implementation());
}

at::Tensor Transformer::linear(const at::Tensor& x, const at::Tensor& weight) const {
  if (!bfloat16_) return at::linear(x, weight);
  return at::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16)).to(at::kFloat);
}

// The head's product has its result in float32: rounded operands multiplied in float32.
at::Tensor Transformer::head_operand(const at::Tensor& tensor) const {
  return bfloat16_ ? tensor.to(at::kBFloat16).to(at::kFloat) : tensor;
}

at::Tensor Transformer::sublayer(const std::vector<at::Tensor>& inputs, TensorFunction compute) const {
  return recompute_ && at::GradMode::is_enabled() ? recomputed(inputs, std::move(compute)) : compute(inputs);
}

at::Tensor Transformer::attention(int64_t layer, const AttentionInputs& inputs, const RopeTable& rope) const {
  std::string name = layer_name(layer) + ".self_attn.";
  // The function may be called when this model's table has become one of another length: it has its own.
  auto compute = [this, table = rope](const std::vector<at::Tensor>& tensors) {
    auto project = [&](size_t input) {
      at::Tensor y = linear(tensors[input], tensors[input + 3]);
      return y.unflatten(-1, {config_.heads, config_.head_width()});  // [B, T, heads, D]
    };
    at::Tensor query = apply_rope(project(0), table, implementation());
    at::Tensor key = apply_rope(project(1), table, implementation());
    return linear(causal_attention(query, key, project(2), implementation()).flatten(-2), tensors[6]);
  };
  return sublayer({inputs.query, inputs.key, inputs.value, parameters_.get(name + "q_proj.weight"),
                   parameters_.get(name + "k_proj.weight"), parameters_.get(name + "v_proj.weight"),
                   parameters_.get(name + "o_proj.weight")},
                  compute);
}

at::Tensor Transformer::mlp(int64_t layer, const MlpInputs& inputs) const {
  std::string name = layer_name(layer) + ".mlp.";
  auto compute = [this](const std::vector<at::Tensor>& tensors) {
    at::Tensor gate = linear(tensors[0], tensors[2]), up = linear(tensors[1], tensors[3]);
    return linear(swiglu(gate, up, implementation()), tensors[4]);
  };
  return sublayer({inputs.gate, inputs.up, parameters_.get(name + "gate_proj.weight"),
                   parameters_.get(name + "up_proj.weight"), parameters_.get(name + "down_proj.weight")},
                  compute);
}

const RopeTable& Transformer::rope_table(int64_t positions) const {
  if (!rope_.cosine.defined() || rope_.cosine.size(0) != positions) {
    at::TensorOptions options = parameters_.get(kFinalNorm).options().requires_grad(false);
    rope_ = make_rope_table(positions, config_.head_width(), config_.rope_theta, options);
  }
  return rope_;
}

double training_flops_per_token(const ModelConfig& config) {
  auto d = static_cast<double>(config.width), m = static_cast<double>(config.mlp_hidden);
  auto layers = static_cast<double>(config.layers), context = static_cast<double>(config.context);
  double weights = layers * (4 * d * d + 3 * d * m) + d * static_cast<double>(config.vocabulary);
  double residual = make_residual(config.residual, config.residual_shape())->cost().flops;
  return 6 * weights + 6 * layers * context * d + 3 * residual;
}

}  // namespace depthroute
