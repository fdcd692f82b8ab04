// The loss of a model over a whole split.
#pragma once
#include <cstdint>
#include <functional>

#include "data/token_dataset.h"
#include "io/json.h"
#include "model/transformer.h"
#include "train/process_group.h"

namespace depthroute {

struct Evaluation {
  double loss = 0;           // mean over all targets, in nats
  double bits_per_byte = 0;  // of the documents' UTF-8 text; 0 where the data does not say how long that is
  int64_t tokens = 0;        // number of targets

  double perplexity() const;
};

// Every token of the split but the first is a target once: windows of the model's context that do not overlap, the
// last one shorter.
// `batch_windows` windows at a time; it bounds the memory. `on_progress` sees the number of targets done. The processes of a
// group all call it, take turns at the batches and all have the result.
Evaluation evaluate(const Transformer& model, const TokenDataset& data, int64_t batch_windows,
                    const std::function<void(int64_t)>& on_progress = {}, const ProcessGroup& group = {});

Json evaluation_to_json(const Evaluation& evaluation);

}  // namespace depthroute
