// Two checkpoints on the same tokens: how their losses differ, and how far apart each depth read's distributions are.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/token_dataset.h"
#include "io/json.h"
#include "model/transformer.h"

namespace depthroute {

// Of one read that both models have, from the same sources. Jensen-Shannon divergence in nats, at most ln 2.
struct ReadChange {
  std::string site, role;
  double per_token = 0;  // mean over tokens (and heads) of the divergence
  double of_means = 0;   // of the distributions averaged over them; never larger
};

struct CheckpointComparison {
  int64_t tokens = 0;
  double loss = 0, other_loss = 0;  // mean over the tokens, in nats
  std::vector<ReadChange> reads{};  // in the model's order
  // Reads of one of the two without a counterpart: other routes, or other sources.
  std::vector<std::string> unmatched{};

  double difference() const { return loss - other_loss; }
};

// Over the first `windows` windows of the split, `batch_windows` at a time. InputError where the models' contexts or
// vocabularies differ: they cannot see the same tokens then.
CheckpointComparison compare_checkpoints(const Transformer& model, const Transformer& other,
                                         const TokenDataset& data, int64_t windows, int64_t batch_windows);

Json checkpoint_comparison_to_json(const CheckpointComparison& comparison);

}  // namespace depthroute
