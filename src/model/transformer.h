// The decoder-only Transformer: pre-norm, rotary embedding, SwiGLU, no biases, tied embeddings (a Llama, but for
// its residual path).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "model/model_config.h"
#include "ops/elementary.h"
#include "ops/recompute.h"
#include "residual/residual.h"

namespace depthroute {

// All parameters of the model, in the order of its layers.
std::vector<ParameterSpec> model_parameters(const ModelConfig& config);

class Transformer {
 public:
  // Parameters are drawn from the seed (float32, on the CPU) and require gradients.
  Transformer(const ModelConfig& config, uint64_t seed);
  // With given parameters, of any floating dtype; RunError unless they are exactly the model's. No copy is made.
  Transformer(const ModelConfig& config, ParameterStore parameters);

  const ModelConfig& config() const { return config_; }
  const ParameterStore& parameters() const { return parameters_; }
  const Residual& residual() const { return *residual_; }

  // Activation checkpointing: backward passes compute the sublayers once more instead of keeping what they compute on the
  // way; the residual stream (sources, reads, norms) is kept. Off by default. Changes the bits of gradients by rounding.
  void recompute_sublayers(bool recompute) { recompute_ = recompute; }

  // Mixed precision, for float32 parameters, which stay what is trained: matrix products take their inputs and weights
  // rounded to bfloat16, sum in float32 and, but for the head's, round what comes out to bfloat16; so do their backward
  // passes. The residual stream, norms, depth reads, softmaxes and the loss stay in float32, and gradients arrive in it.
  void multiply_in_bfloat16(bool bfloat16) { bfloat16_ = bfloat16; }

  // token_ids [B, T] int64, T any length -> [B, T, d], after the final norm.
  at::Tensor hidden(const at::Tensor& token_ids, const DepthProbe& probe = {}) const;
  // [B, T, V]
  at::Tensor logits(const at::Tensor& token_ids, const DepthProbe& probe = {}) const;
  // The sum over all tokens of the cross-entropy with targets [B, T], in nats (a scalar).
  at::Tensor loss_sum(const at::Tensor& token_ids, const at::Tensor& targets, const DepthProbe& probe = {}) const;

 private:
  Implementation implementation() const { return config_.residual.implementation; }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) const;
  at::Tensor head_operand(const at::Tensor& tensor) const;
  at::Tensor sublayer(const std::vector<at::Tensor>& inputs, TensorFunction compute) const;
  at::Tensor attention(int64_t layer, const AttentionInputs& inputs, const RopeTable& rope) const;
  at::Tensor mlp(int64_t layer, const MlpInputs& inputs) const;
  const RopeTable& rope_table(int64_t positions) const;

  ModelConfig config_;
  ParameterStore parameters_;
  std::unique_ptr<Residual> residual_;
  bool recompute_ = false, bfloat16_ = false;
  mutable RopeTable rope_;  // of the length last asked for
};

// FLOPs of one token in forward and backward pass at sequences of `context` tokens: 6 per weight of a matrix
// product (the head
// included, the embedding's look-up not), 6 * context * d per layer for causal attention (half of the full square),
// and three times
// the forward cost of the residual path.
double training_flops_per_token(const ModelConfig& config);

}  // namespace depthroute
