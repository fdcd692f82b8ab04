#include "train/batches.h"

#include <ATen/ATen.h>

#include "io/error.h"

namespace depthroute {
namespace {

int64_t checked_window_count(const TokenDataset& data, int64_t context, int64_t batch_windows) {
  int64_t windows = window_count(data, context);
  if (windows < batch_windows) {
    fail_input("the training split has {} tokens, {} windows of {}: less than one batch of {} windows",
               data.tokens(), windows, context, batch_windows);
  }
  return windows;
}

}  // namespace

int64_t window_count(const TokenDataset& data, int64_t context) {
  return (data.tokens() - 1) / context;
}

Batch read_windows(const TokenDataset& data, const std::vector<int64_t>& windows, int64_t context) {
  auto count = static_cast<int64_t>(windows.size());
  at::Tensor tokens = at::empty({count, context + 1}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    data.copy(windows[static_cast<size_t>(i)] * context, context + 1,
              tokens.data_ptr<int64_t>() + i * (context + 1));
  }
  return {tokens.slice(1, 0, context).contiguous(), tokens.slice(1, 1).contiguous()};
}

TrainingBatches::TrainingBatches(std::shared_ptr<const TokenDataset> data, uint64_t seed, int64_t context,
                                 int64_t batch_windows)
    : data_(std::move(data)),
      order_(seed, checked_window_count(*data_, context, batch_windows)),
      context_(context),
      batch_windows_(batch_windows) {}

std::vector<int64_t> TrainingBatches::windows(int64_t step, int64_t first, int64_t count) const {
  std::vector<int64_t> windows;
  for (int64_t i = first; i < first + count; ++i) windows.push_back(order_.at(step * batch_windows_ + i));
  return windows;
}

Batch TrainingBatches::read(int64_t step, int64_t first, int64_t count) const {
  return read_windows(*data_, windows(step, first, count), context_);
}

}  // namespace depthroute
