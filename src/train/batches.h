// The batches of a run: windows of context + 1 tokens, read in an order that depends on the seed alone, whatever
// the variant, the micro-batch size or the number of processes.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "data/token_dataset.h"
#include "data/window_order.h"

namespace depthroute {

struct Batch {
  at::Tensor token_ids, targets;  // [windows, context] int64; targets are the tokens one later
};

// Windows do not overlap: window w holds the tokens [w * context, (w + 1) * context], its last token being the next
// one's first.
int64_t window_count(const TokenDataset& data, int64_t context);
Batch read_windows(const TokenDataset& data, const std::vector<int64_t>& windows, int64_t context);

class TrainingBatches {
 public:
  // InputError where the data is smaller than one batch.
  TrainingBatches(std::shared_ptr<const TokenDataset> data, uint64_t seed, int64_t context, int64_t batch_windows);

  // Windows [first, first + count) of the batch of optimizer step `step` (0-based).
  Batch read(int64_t step, int64_t first, int64_t count) const;
  // Their numbers, and where each begins on the disk, for messages.
  std::vector<int64_t> windows(int64_t step, int64_t first, int64_t count) const;
  TokenPlace place_of_window(int64_t window) const { return data_->place_of(window * context_); }

 private:
  std::shared_ptr<const TokenDataset> data_;
  WindowOrder order_;
  int64_t context_, batch_windows_;
};

}  // namespace depthroute
