#include "ops/depth_memory.h"

#include <utility>

#include "io/error.h"
#include "ops/dense_mix.h"

namespace depthroute {
DepthMemory::DepthMemory(int64_t heads, double eps, Implementation implementation)
    : heads_(heads), eps_(eps), implementation_(implementation) {}

void DepthMemory::append(const at::Tensor& source) {
  if (!source.defined()) fail_input("depth memory: the source to append is undefined");
  if (partial_ && partial_->source().is_same(source)) {
    completed_.push_back(*partial_);
  } else {
    completed_.emplace_back(source);
  }
  plan({});
}

void DepthMemory::plan(std::vector<PlannedRead> reads) {
  planned_.clear();
  phases_.clear();
  next_planned_ = 0;
  if (implementation_ != Implementation::kFused || completed_.empty()) return;
  // Between the phases the mixtures would be rounded to bfloat16.
  if (completed_[0].source().scalar_type() == at::kBFloat16) return;
  // As if every read had two routes: so all variants with the same blocks choose alike, and those that differ in nothing but
  // their routes agree to the last bit (rd_tied and block_attnres). With fewer it pays earlier than it is chosen.
  std::vector<int64_t> routes(reads.size(), 2);
  auto completed = static_cast<int64_t>(completed_.size());
  if (two_phase_rows(completed, routes) < one_phase_rows(completed, routes)) planned_ = std::move(reads);
}

std::optional<DepthReadPhase> DepthMemory::next_phase(const std::vector<at::Tensor>& queries) {
  if (planned_.empty()) return std::nullopt;
  size_t index = next_planned_++;
  bool as_planned = index < planned_.size() && partial_.has_value() == (index > 0) &&
                    queries.size() == planned_[index].queries.size();
  for (size_t r = 0; as_planned && r < queries.size(); ++r)
    as_planned = queries[r].is_same(planned_[index].queries[r]);
  if (!as_planned) fail_run("depth memory: read {} is not the planned one", index);
  if (index == 0) phases_ = depth_read_first_phase(sources(), planned_, heads_, eps_);
  return std::move(phases_[index]);
}

void DepthMemory::set_partial(const at::Tensor& partial) {
  partial_.reset();
  if (partial.defined()) partial_.emplace(partial);
}

int64_t DepthMemory::size() const {
  return static_cast<int64_t>(completed_.size()) + (partial_ ? 1 : 0);
}

std::vector<DepthSource*> DepthMemory::sources() {
  std::vector<DepthSource*> sources;
  for (DepthSource& source : completed_) sources.push_back(&source);
  if (partial_) sources.push_back(&*partial_);
  return sources;
}

DepthRead DepthMemory::read(const std::vector<at::Tensor>& queries, const at::Tensor& key_norm_weight) {
  if (implementation_ == Implementation::kFused) {
    std::optional<DepthReadPhase> phase = next_phase(queries);
    return depth_read_fused(sources(), queries, key_norm_weight, {}, heads_, eps_, phase ? &*phase : nullptr);
  }
  return depth_read_reference(source_tensors(sources()), queries, key_norm_weight, {}, heads_, eps_);
}

std::vector<at::Tensor> DepthMemory::mix(const at::Tensor& weights) {
  if (implementation_ == Implementation::kFused) return dense_mix_fused(sources(), weights);
  return dense_mix_reference(source_tensors(sources()), weights);
}

}  // namespace depthroute
