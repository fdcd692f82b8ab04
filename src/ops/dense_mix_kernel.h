// The arithmetic of the fused dense mix (definition: ops/dense_mix.h) on raw pointers: no tensors, no threads, no
// allocation. As in the depth read, a token's rows are read once for all streams, and source gradients are added in
// place. The bits of a token depend neither on the other tokens nor on the range in which it was computed.
#pragma once
#include <cstdint>

#include "ops/depth_read_limits.h"

namespace depthroute {

// T is float or double. N tokens, width d, K sources, C streams; every array is dense and row-major.
template <typename T>
struct DenseMixSources {
  int64_t tokens = 0, width = 0, sources = 0, streams = 0;
  const T* source[kMaxDepthSources] = {};  // K arrays [N, d]
  const T* weight = nullptr;               // [C, K], or [N, C, K]
  bool weight_per_token = false;
};

template <typename T>
struct DenseMixForward : DenseMixSources<T> {
  T* mixture[kMaxDepthRoutes] = {};  // C arrays [N, d]
};

template <typename T>
struct DenseMixBackward : DenseMixSources<T> {
  const T* mixture_gradient[kMaxDepthRoutes] = {};  // C arrays [N, d]
  T* source_gradient[kMaxDepthSources] = {};        // K arrays [N, d]; null: not wanted
  bool assign[kMaxDepthSources] = {};  // the first contribution to a source gradient: written, not added
  T* weight_gradient = nullptr;        // [N, C, K], where the weights are a token's own
};

// Tokens begin <= n < end.
template <typename T>
void dense_mix_forward(const DenseMixForward<T>& mix, int64_t begin, int64_t end);

// Tokens begin <= n < end. Where the weights are the same for all tokens, their gradient is added to weight_sum
// [C, K].
template <typename T>
void dense_mix_backward(const DenseMixBackward<T>& mix, int64_t begin, int64_t end, double* weight_sum);

}  // namespace depthroute
