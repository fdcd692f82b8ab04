#include "study/plan.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "model/transformer.h"

namespace depthroute {
namespace {

int64_t count_elements(const std::vector<ParameterSpec>& specs) {
  int64_t count = 0;
  for (const ParameterSpec& spec : specs) {
    int64_t elements = 1;
    for (int64_t extent : spec.shape) elements *= extent;
    count += elements;
  }
  return count;
}

// float32 values that backward keeps: of a token, about 10 of the width (what the residual path carries, norms, rotated
// heads, attention's output) and 3 of the MLP's hidden width a layer (gate, up and their product); and the logits that
// exist at a time (see ops/elementary.h) with the gradient of the table, twice, since it is also the embedding's. With
// activation checkpointing about 9 of the width a layer, and all of it for one layer.
double kept_values(const ModelConfig& model, double tokens, bool checkpointing) {
  auto d = static_cast<double>(model.width), m = static_cast<double>(model.mlp_hidden),
       classes = static_cast<double>(model.vocabulary);
  auto layers = static_cast<double>(model.layers);
  double activations = checkpointing ? layers * 9 * d + 10 * d + 3 * m : layers * (10 * d + 3 * m);
  return activations * tokens + std::min(tokens * classes, double{1 << 24}) + 2 * classes * d;
}

}  // namespace

std::vector<VariantPlan> plan_variants(const std::vector<ModelConfig>& models, int64_t micro_batch_windows,
                                       bool activation_checkpointing) {
  std::vector<VariantPlan> plans;
  for (const ModelConfig& model : models) {
    ModelConfig standard = model;
    standard.residual = named_residual_config("standard", model.layers);
    VariantPlan plan;
    plan.variant = model.residual.variant;
    plan.parameters = count_elements(model_parameters(model));
    plan.residual_parameters = plan.parameters - count_elements(model_parameters(standard));
    plan.flops_per_token = training_flops_per_token(model);
    plan.residual_bytes_per_token =
        make_residual(model.residual, model.residual_shape())->cost().values * sizeof(float);
    // Weight, gradient and two moments of each parameter.
    plan.memory_bytes = 4 * sizeof(float) * static_cast<double>(plan.parameters) +
                        sizeof(float) * kept_values(model, static_cast<double>(micro_batch_windows * model.context),
                                                    activation_checkpointing);
    plans.push_back(plan);
  }
  return plans;
}

double measure_gemm_rate(const ModelConfig& model, int64_t threads) {
  at::NoGradGuard no_grad;
  at::set_num_threads(static_cast<int>(threads));
  constexpr int64_t kRows = 1024;
  at::Tensor x = at::ones({kRows, model.width}), weight = at::ones({model.mlp_hidden, model.width});
  at::linear(x, weight);
  double flops = 2.0 * kRows * static_cast<double>(model.width) * static_cast<double>(model.mlp_hidden), done = 0,
         seconds = 0;
  auto begin = std::chrono::steady_clock::now();
  while (seconds < 1) {
    at::linear(x, weight);
    done += flops;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return done / seconds;
}

Json plan_to_json(const VariantPlan& plan) {
  return {{"variant", plan.variant},
          {"parameters", plan.parameters},
          {"residual_parameters", plan.residual_parameters},
          {"flops_per_token", plan.flops_per_token},
          {"residual_bytes_per_token", plan.residual_bytes_per_token},
          {"memory_bytes", plan.memory_bytes}};
}

}  // namespace depthroute
