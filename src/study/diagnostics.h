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
#include "study/results.h"

namespace depthroute {

struct DepthDiagnostics {
  int64_t tokens = 0;
  // Means over tokens and heads. layer is -1 for the final read; role is "qkv", "qk", "v", "mlp", "out", ..
  std::vector<DepthReadSummary> reads;
  std::vector<LayerDivergence> divergence;  // of variants with routes qk and v; layer by layer

  double mean_per_token() const;
  double mean_of_means() const;
};

// Calls `each` with the token ids and targets of the first `windows` windows of the split (fewer if it is shorter),
// `batch_windows` at a time, and returns the number of tokens. InputError where the split is shorter than a window.
int64_t for_first_windows(const TokenDataset& data, int64_t context, int64_t windows, int64_t batch_windows,
                          const std::function<void(const at::Tensor& token_ids, const at::Tensor& targets)>& each);

// Over the first `windows` windows of the split (fewer if it is shorter), `batch_windows` at a time.
DepthDiagnostics diagnose(const Transformer& model, const TokenDataset& data, int64_t windows,
                          int64_t batch_windows);

// The object of a "diagnostics" event; empty for a model without depth reads.
Json diagnostics_to_json(const DepthDiagnostics& diagnostics);

// What the trainer calls at milestones: a fixed, small subset of the validation split.
std::function<Json(const Transformer&, const TokenDataset&)> milestone_diagnostics();

}  // namespace depthroute
