#include "train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <numbers>

#include "train/batches.h"

namespace depthroute {

double Evaluation::perplexity() const {
  return std::exp(loss);
}

Evaluation evaluate(const Transformer& model, const TokenDataset& data, int64_t batch_windows,
                    const std::function<void(int64_t)>& on_progress, const ProcessGroup& group) {
  at::NoGradGuard no_grad;
  int64_t context = model.config().context, windows = window_count(data, context);
  double sum = 0;
  int64_t done = 0, batches = 0;
  auto own = [&] { return batches++ % group.size() == group.rank(); };
  auto add = [&](const Batch& batch) {
    sum += model.loss_sum(batch.token_ids, batch.targets).item<double>();
    done += batch.targets.numel();
    if (on_progress) on_progress(done);
  };
  for (int64_t first = 0; first < windows; first += batch_windows) {
    if (!own()) continue;
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < std::min(windows, first + batch_windows); ++i) numbers.push_back(i);
    add(read_windows(data, numbers, context));
  }
  int64_t rest = data.tokens() - 1 - windows * context;
  if (rest > 0 && own()) {
    at::Tensor tokens = at::empty({1, rest + 1}, at::kLong);
    data.copy(windows * context, rest + 1, tokens.data_ptr<int64_t>());
    add({tokens.slice(1, 0, rest).contiguous(), tokens.slice(1, 1).contiguous()});
  }
  std::vector<double> totals = {sum, static_cast<double>(done)};
  group.sum(totals);
  sum = totals[0];
  done = static_cast<int64_t>(totals[1]);
  if (done == 0) fail_input("the split has {} tokens: nothing to evaluate", data.tokens());
  Evaluation result{.loss = sum / static_cast<double>(done), .tokens = done};
  if (data.text_bytes() > 0) {
    // The split's text is all of its tokens; the one that is no target is given the mean loss.
    double bits = result.loss * static_cast<double>(data.tokens()) / std::numbers::ln2;
    result.bits_per_byte = bits / static_cast<double>(data.text_bytes());
  }
  return result;
}

Json evaluation_to_json(const Evaluation& evaluation) {
  Json json = {{"loss", evaluation.loss}, {"perplexity", evaluation.perplexity()}};
  if (evaluation.bits_per_byte > 0) json["bits_per_byte"] = evaluation.bits_per_byte;
  json["tokens"] = evaluation.tokens;
  return json;
}

}  // namespace depthroute
