// What a run costs, before it is run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/json.h"
#include "train/run_config.h"

namespace depthroute {

struct VariantPlan {
  std::string variant;
  int64_t parameters = 0;               // exact
  int64_t residual_parameters = 0;      // of them, what the variant adds to the standard residual
  double flops_per_token = 0;           // forward and backward, see training_flops_per_token
  double residual_bytes_per_token = 0;  // float32 traffic of the residual path, forward
  double memory_bytes =
      0;  // estimate: weights, gradients, AdamW's moments and what backward keeps of one micro-batch
};

// The variants of a model's sizes, one after another.
std::vector<VariantPlan> plan_variants(const std::vector<ModelConfig>& models, int64_t micro_batch_windows,
                                       bool activation_checkpointing = false);

// FLOP/s of float32 matrix products of the model's MLP shape on this machine, measured for about a second.
double measure_gemm_rate(const ModelConfig& model, int64_t threads);

Json plan_to_json(const VariantPlan& plan);

}  // namespace depthroute
