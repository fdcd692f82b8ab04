#include "ops/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/depth_merge_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

// After foreach_target.h, which includes this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>

#include "ops/depth_merge_kernel.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

// mixture = keep mixture + weight x.
template <typename T>
HWY_INLINE void blend(const T* HWY_RESTRICT x, T weight, T keep, int64_t width, T* HWY_RESTRICT mixture) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    const auto kept = hn::Mul(hn::LoadU(d, mixture + j), hn::Set(d, keep));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + j), hn::Set(d, weight), kept), d, mixture + j);
  }
  for (; j < width; ++j) mixture[j] = mixture[j] * keep + x[j] * weight;
}

// Route r of head h of token n, with the partial sum's score.
template <typename T>
HWY_INLINE void merge_route(const DepthMerge<T>& merge, int64_t n, int64_t h, int64_t r, T score) {
  const int64_t heads = merge.heads, completed = merge.completed, width = merge.width / heads;
  const int64_t from = (r * merge.tokens + n) * completed * heads + h;
  const int64_t to = (r * merge.tokens + n) * (completed + 1) * heads + h;
  // From the largest score: its probability is not small.
  int64_t largest = 0;
  for (int64_t i = 1; i < completed; ++i) {
    if (merge.completed_scores[from + i * heads] > merge.completed_scores[from + largest * heads]) largest = i;
  }
  const T log_sum = merge.completed_scores[from + largest * heads] -
                    std::log(merge.completed_probabilities[from + largest * heads]);
  const T weight = T{1} / (T{1} + std::exp(log_sum - score)), keep = T{1} / (T{1} + std::exp(score - log_sum));
  for (int64_t i = 0; i < completed; ++i) {
    merge.probabilities[to + i * heads] = merge.completed_probabilities[from + i * heads] * keep;
    if (merge.scores != nullptr) merge.scores[to + i * heads] = merge.completed_scores[from + i * heads];
  }
  merge.probabilities[to + completed * heads] = weight;
  if (merge.scores != nullptr) merge.scores[to + completed * heads] = score;
  const int64_t offset = n * merge.width + h * width;
  blend(merge.partial + offset, weight, keep, width, merge.mixture[r] + offset);
}

template <int R, typename T>
HWY_INLINE void merge_tokens(const DepthMerge<T>& merge, int64_t begin, int64_t end) {
  const int64_t heads = merge.heads, width = merge.width / heads;
  for (int64_t n = begin; n < end; ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      const T* row = merge.partial + n * merge.width + h * width;
      const T* query[R];
      for (int r = 0; r < R; ++r) query[r] = merge.scaled_query + r * merge.width + h * width;
      T score[R];
      dots<R, false>(&row, 1, query, width, 0, score, 1);
      T* norm = merge.reciprocal_norm + n * heads + h;
      if (!merge.norm_known) *norm = reciprocal_norm<T>(row, width, merge.eps);
      for (int r = 0; r < R; ++r) merge_route(merge, n, h, r, score[r] * *norm);
    }
  }
}

template <typename T>
void merge_routes(const DepthMerge<T>& merge, int64_t begin, int64_t end) {
  with_count(merge.routes, [&](auto routes) { merge_tokens<routes()>(merge, begin, end); });
}

// Dispatch tables hold plain functions.
void merge_float(const DepthMerge<float>& merge, int64_t begin, int64_t end) {
  merge_routes(merge, begin, end);
}
void merge_double(const DepthMerge<double>& merge, int64_t begin, int64_t end) {
  merge_routes(merge, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace depthroute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace depthroute {

HWY_EXPORT(merge_float);
HWY_EXPORT(merge_double);

template <>
void depth_merge(const DepthMerge<float>& merge, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(merge_float)(merge, begin, end);
}

template <>
void depth_merge(const DepthMerge<double>& merge, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(merge_double)(merge, begin, end);
}

}  // namespace depthroute
#endif
