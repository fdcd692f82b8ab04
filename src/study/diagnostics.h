// What the depth reads of a model look at: per read the mean distribution over its sources, its entropy and its
// largest weight, and how far the QK route's distribution is from the V route's.
//
// The Jensen-Shannon divergence JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2, in nats (at most ln 2), is given in
// two forms, since the paper does not say which one it reports: computed per token and then averaged, and of the
// averaged distributions.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/token_dataset.h"
#include "io/json.h"
#include "model/transformer.h"

namespace depthroute {

struct ReadStatistics {
  std::string site;   // "model.layers.3.self_attn", "model.layers.3.mlp" or "model"
  int64_t layer = 0;  // -1 for the final read
  std::string kind;   // "attention", "mlp" or "output"
  std::string role;   // "qkv", "qk", "v", "mlp", "out", ..
  std::vector<std::string> sources;
  std::vector<double> mean;  // by source; sums to 1
  double entropy = 0;        // mean over tokens (and heads), in nats
  double largest = 0;        // mean over tokens (and heads) of the largest weight
};

struct RouteDivergence {
  int64_t layer = 0;
  double per_token = 0, of_means = 0;
};

struct DepthDiagnostics {
  int64_t tokens = 0;
  std::vector<ReadStatistics> reads;
  std::vector<RouteDivergence> divergence;  // of variants with routes qk and v; layer by layer

  double mean_per_token() const;
  double mean_of_means() const;
};

// Over the first `windows` windows of the split (fewer if it is shorter), `batch_windows` at a time.
DepthDiagnostics diagnose(const Transformer& model, const TokenDataset& data, int64_t windows,
                          int64_t batch_windows);

// The object of a "diagnostics" event; empty for a model without depth reads.
Json diagnostics_to_json(const DepthDiagnostics& diagnostics);

// What the trainer calls at milestones: a fixed, small subset of the validation split.
std::function<Json(const Transformer&, const TokenDataset&)> milestone_diagnostics();

}  // namespace depthroute
