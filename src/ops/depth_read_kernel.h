// The arithmetic of the fused depth read (definition: ops/depth_read.h) on raw pointers: no tensors, no threads, no
// allocation.
//
// The idea is to count bytes. A token's K rows of d values are brought into the cache once, by the scores, and are
// still there for the mix; all routes are served by that one pass; no [K, N, d] stack exists, since a source is a
// pointer. So R routes must read K d and write R d values a token, and that is what they do.
//
// Backward, with upstream gradient dh_r of the mixture, u_r = q_r * w, and everything per head slice of width d/H:
//
//   c_{r,i}  = p_{r,i} (dh_r . S_i - sum_j p_{r,j} dh_r . S_j)                the gradient of the score a_{r,i}
//   dS_i    += sum_r [ p_{r,i} dh_r + c_{r,i} rstd_i (u_r - a_{r,i} rstd_i / (d/H) S_i) ]
//   du_r     = sum_{tokens,i} c_{r,i} rstd_i S_i                 whence dq_r = du_r * w, dw = sum_r du_r * q_r
//
// The scores a and the probabilities p of the forward read are kept (K R H values a token against K d), the rest is
// recomputed from the sources. Source gradients are added in place, so that the reads of a source share one
// accumulator.
//
// Promises: the bits of a token depend neither on the other tokens nor on the range in which it was computed, those
// of a route not on the other routes. NaN and infinity stay in their token. The scores of a token are summed in
// twice as many parts as a vector has elements, sums over tokens in T over 64 of them and in double beyond.
//
// The functions are compiled for several instruction sets (Highway) and the best one is chosen when the program
// runs; another instruction set rounds differently. The caller's arrays should be aligned to vectors; a misaligned
// one is slower, not wrong.
#pragma once
#include <cstdint>

#include "ops/bfloat16.h"
#include "ops/depth_read_limits.h"

namespace depthroute {

// T, in which everything is computed, is float or double; sources, mixtures and their gradients are stored in S, which
// is T, or Bfloat16 where T is float. N tokens, width d, K sources, R routes, H heads; every array is dense and
// row-major.
template <typename T, typename S = T>
struct DepthReadSources {
  int64_t tokens = 0, width = 0, heads = 1, sources = 0, routes = 0;
  const S* source[kMaxDepthSources] = {};  // K arrays [N, d]
  const T* scaled_query = nullptr;         // [R, d]: u_r = q_r * w
  const T* output_norm_weight = nullptr;   // [d], or null: the mixture is not normalised
};

template <typename T, typename S = T>
struct DepthReadForward : DepthReadSources<T, S> {
  double eps = 0;
  T* reciprocal_norm[kMaxDepthSources] = {};  // K arrays [N, H]: rstd_i, read where known, written otherwise
  bool norm_known[kMaxDepthSources] = {};
  S* mixture[kMaxDepthRoutes] = {};     // R arrays [N, d]
  T* probabilities = nullptr;           // [R, N, K, H]
  T* scores = nullptr;                  // [R, N, K, H] for the backward pass, or null
  T* output_reciprocal_norm = nullptr;  // [R, N], where there is an output norm
};

template <typename T, typename S = T>
struct DepthReadBackward : DepthReadSources<T, S> {
  const T* reciprocal_norm[kMaxDepthSources] = {};
  const T* probabilities = nullptr;
  const T* scores = nullptr;
  const T* output_reciprocal_norm = nullptr;
  const S* mixture_gradient[kMaxDepthRoutes] = {};  // R arrays [N, d]; null: zero
  T* source_gradient[kMaxDepthSources] = {};        // K arrays [N, d]; null: not wanted
  bool assign[kMaxDepthSources] = {};  // the first contribution to a source gradient: written, not added
};

// Tokens begin <= n < end.
template <typename T, typename S>
void depth_read_forward(const DepthReadForward<T, S>& read, int64_t begin, int64_t end);

// Tokens begin <= n < end. Adds du_r (R rows) and the gradient of the output-norm weight (row R) to
// parameter_gradient [R + 1, d]; workspace: depth_read_workspace(R, d) values.
template <typename T, typename S>
void depth_read_backward(const DepthReadBackward<T, S>& read, int64_t begin, int64_t end,
                         double* parameter_gradient, T* workspace);

constexpr int64_t depth_read_workspace(int64_t routes, int64_t width) {
  return (2 * routes + 2) * width;
}

}  // namespace depthroute
