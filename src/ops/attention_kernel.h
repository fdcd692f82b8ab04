// The arithmetic of the fused causal attention (definition: ops/attention.h) on raw pointers: no tensors, no threads, no
// allocation. T is float or double.
//
// Scores exist for a block of queries against a block of keys at a time, so that they stay in the cache, and nothing is
// computed above the diagonal but in the blocks that it cuts (online softmax: Milakov and Gimelshein, arXiv 1805.02867;
// blocks and the recomputing backward pass: FlashAttention, arXiv 2205.14135). All products are of one form,
// C += A B with a tile of C in registers: A is read element by element in whatever order, B in panels as wide as the
// tile, into which keys and values are copied once per head.
//
// The bits of a head depend on nothing but its own arrays.
#pragma once
#include <cstdint>

namespace depthroute {

// Arrays [B, T, H, D], dense. A piece of work is a head, or one of its two halves: every other block of queries but
// one, such that the halves take the same time (the later a query, the more keys it sees).
template <typename T>
struct CausalAttention {
  int64_t batch = 0, positions = 0, heads = 0, head_width = 0;
  T scale = 1;
  const T *query = nullptr, *key = nullptr, *value = nullptr;
  T* output = nullptr;
  T* log_sum = nullptr;  // [B, H, T]: of the exponentials of a query's scores
  // Backward only; key_gradient and value_gradient have one more dimension in front, the parts, over which they have
  // to be summed.
  const T* output_gradient = nullptr;
  T *query_gradient = nullptr, *key_gradient = nullptr, *value_gradient = nullptr;

  // Of the queries of a head.
  int64_t parts() const { return positions > 192 ? 2 : 1; }
  int64_t pieces() const { return batch * heads * parts(); }
};

// Queries and keys of a block: its scores and their gradients fill the first-level cache and a little more.
inline constexpr int64_t kAttentionQueries = 48, kAttentionKeys = 128;
inline constexpr int64_t kAttentionScoreStride =
    kAttentionKeys + 16;  // no power of two: columns would share cache sets

// Rows and columns of a workspace are whole panels of any vector's width.
constexpr int64_t attention_padded(int64_t count) {
  return (count + 63) / 64 * 64;
}

// Values of workspace that a call needs, whatever pieces it does. It should be aligned to 64 bytes.
constexpr int64_t attention_workspace(int64_t positions, int64_t head_width) {
  return (6 * attention_padded(positions) + 4 * kAttentionQueries) * attention_padded(head_width) +
         2 * kAttentionQueries * kAttentionScoreStride;
}

// Pieces begin <= piece < end.
template <typename T>
void attention_forward(const CausalAttention<T>& attention, int64_t begin, int64_t end, T* workspace);
template <typename T>
void attention_backward(const CausalAttention<T>& attention, int64_t begin, int64_t end, T* workspace);

}  // namespace depthroute
