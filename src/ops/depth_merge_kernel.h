// The second phase of a depth read (Attention Residuals, arXiv 2603.15031, algorithm 1) on raw pointers. Queries do not
// depend on the hidden state, so the reads of a block over the completed sources, which they share, can be done in one
// pass (the first phase, ops/depth_read_kernel.h); what is left for each read is to merge the running partial sum by the
// online softmax: with lse the logarithm of the sum of the completed sources' exponentials, a the partial sum's score,
//
//   w = 1 / (1 + exp(lse - a))       h = (1 - w) h_completed + w S_partial       p = ((1 - w) p_completed, w)
//
// The bits of a token depend neither on the other tokens nor on the range in which it was computed; NaN and infinity
// stay in their token.
#pragma once
#include <cstdint>

#include "ops/depth_read_limits.h"

namespace depthroute {

// T is float or double. N tokens, width d, K completed sources, R routes, H heads; every array is dense and row-major.
template <typename T>
struct DepthMerge {
  int64_t tokens = 0, width = 0, heads = 1, completed = 0, routes = 0;
  double eps = 0;
  const T* partial = nullptr;       // [N, d]
  const T* scaled_query = nullptr;  // [R, d]: q_r * w
  T* reciprocal_norm = nullptr;     // [N, H] of the partial sum: read where known, written otherwise
  bool norm_known = false;
  const T *completed_scores = nullptr, *completed_probabilities = nullptr;  // [R, N, K, H]
  T* mixture[kMaxDepthRoutes] = {};               // R arrays [N, d]: completed, then merged
  T *scores = nullptr, *probabilities = nullptr;  // [R, N, K + 1, H]; scores may be null
};

// Tokens begin <= n < end.
template <typename T>
void depth_merge(const DepthMerge<T>& merge, int64_t begin, int64_t end);

}  // namespace depthroute
