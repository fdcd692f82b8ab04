#include "ops/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

// After foreach_target.h, which includes this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "ops/attention_kernel.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

constexpr int64_t kQueries = kAttentionQueries, kKeys = kAttentionKeys, kScoreStride = kAttentionScoreStride;

// Columns of a panel: two vectors.
template <typename T>
HWY_INLINE int64_t panel_width() {
  return 2 * static_cast<int64_t>(hn::Lanes(Vector<T>()));
}

// A matrix whose element (i, k) is at begin[i * row + k * column].
template <typename T>
struct Matrix {
  const T* begin;
  int64_t row, column;
};

// C (M rows of one panel's width) = A B over `depth` columns of A, or C += A B.
template <int M, bool kAdd, typename T>
HWY_INLINE void product_tile(const Matrix<T>& a, int64_t first_row, const T* HWY_RESTRICT panel, int64_t depth,
                             T* HWY_RESTRICT c, int64_t stride) {
  const Vector<T> d;
  using V = hn::Vec<Vector<T>>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V low[M], high[M];
  DEPTHROUTE_UNROLL for (int i = 0; i < M; ++i) {
    low[i] = kAdd ? hn::LoadU(d, c + i * stride) : hn::Zero(d);
    high[i] = kAdd ? hn::LoadU(d, c + i * stride + lanes) : hn::Zero(d);
  }
  const T* element = a.begin + first_row * a.row;
  for (int64_t k = 0; k < depth; ++k) {
    const V x = hn::LoadU(d, panel), y = hn::LoadU(d, panel + lanes);
    DEPTHROUTE_UNROLL for (int i = 0; i < M; ++i) {
      const V factor = hn::Set(d, element[i * a.row]);
      low[i] = hn::MulAdd(factor, x, low[i]);
      high[i] = hn::MulAdd(factor, y, high[i]);
    }
    element += a.column;
    panel += 2 * lanes;
  }
  DEPTHROUTE_UNROLL for (int i = 0; i < M; ++i) {
    hn::StoreU(low[i], d, c + i * stride);
    hn::StoreU(high[i], d, c + i * stride + lanes);
  }
}

// C [rows, columns] = A B, or C += A B. Panel p of B, `panel_stride` values behind the one before, holds columns p W.. of it, row
// after row; C has room for whole panels.
template <bool kAdd, typename T>
HWY_INLINE void product(const Matrix<T>& a, int64_t rows, const T* panels, int64_t panel_stride, int64_t columns,
                        int64_t depth, T* c, int64_t stride) {
  const int64_t width = panel_width<T>();
  for (int64_t j = 0; j < columns; j += width, panels += panel_stride) {
    int64_t i = 0;
    for (; i + 6 <= rows; i += 6) product_tile<6, kAdd>(a, i, panels, depth, c + i * stride + j, stride);
    for (; i + 2 <= rows; i += 2) product_tile<2, kAdd>(a, i, panels, depth, c + i * stride + j, stride);
    for (; i < rows; ++i) product_tile<1, kAdd>(a, i, panels, depth, c + i * stride + j, stride);
  }
}

template <typename T>
HWY_INLINE void clear(T* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = 0;
}

// Rows [rows, width] of an array, `stride` apart, in panels; what is beyond the width becomes zero.
template <typename T>
HWY_INLINE void pack(const T* from, int64_t stride, int64_t rows, int64_t width, T* HWY_RESTRICT panels) {
  const int64_t panel = panel_width<T>();
  for (int64_t j = 0; j < width; j += panel) {
    const int64_t count = HWY_MIN(panel, width - j);
    for (int64_t i = 0; i < rows; ++i, panels += panel) {
      const T* row = from + i * stride + j;
      for (int64_t c = 0; c < count; ++c) panels[c] = row[c];
      for (int64_t c = count; c < panel; ++c) panels[c] = 0;
    }
  }
}

// The same of the transposed matrix: panels of `panel` rows.
template <typename T>
HWY_INLINE void pack_transposed(const T* from, int64_t stride, int64_t rows, int64_t width,
                                T* HWY_RESTRICT panels) {
  const int64_t panel = panel_width<T>();
  for (int64_t i = 0; i < rows; i += panel, panels += panel * width) {
    const int64_t count = HWY_MIN(panel, rows - i);
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t j = 0; j < width; ++j) panels[j * panel + c] = from[(i + c) * stride + j];
    }
    for (int64_t c = count; c < panel; ++c) {
      for (int64_t j = 0; j < width; ++j) panels[j * panel + c] = 0;
    }
  }
}

// Where one head's arrays begin, and the room for its work.
template <typename T>
struct Head {
  int64_t stride;        // from one position to the next
  int64_t padded_width;  // D in whole panels, padded_positions likewise
  int64_t padded_positions;
  const T *query, *key, *value, *output_gradient;
  T *output, *log_sum, *query_gradient;
  // Workspace: panels of all keys and values, and of their transposed forms; gradients of keys and values.
  T *key_panels, *key_columns, *value_panels, *value_columns, *key_gradient, *value_gradient;
  // Of a block of queries: scaled, in panels, their output or gradient, its gradient in panels; scores.
  T *scaled, *scaled_panels, *sum, *gradient_panels, *score, *score_gradient;
  T largest[kQueries], total[kQueries];
};

template <typename T>
HWY_INLINE Head<T> head_of(const CausalAttention<T>& attention, int64_t piece, T* workspace) {
  const int64_t index = piece / attention.parts(), b = index / attention.heads, h = index % attention.heads;
  Head<T> head;
  head.stride = attention.heads * attention.head_width;
  head.padded_width = attention_padded(attention.head_width);
  head.padded_positions = attention_padded(attention.positions);
  const int64_t offset = b * attention.positions * head.stride + h * attention.head_width;
  const auto at = [&](auto* array) { return array == nullptr ? nullptr : array + offset; };
  head.query = at(attention.query);
  head.key = at(attention.key);
  head.value = at(attention.value);
  head.output = at(attention.output);
  head.output_gradient = at(attention.output_gradient);
  head.query_gradient = at(attention.query_gradient);
  head.log_sum = attention.log_sum + index * attention.positions;
  T** const large[] = {&head.key_panels,    &head.key_columns,  &head.value_panels,
                       &head.value_columns, &head.key_gradient, &head.value_gradient};
  for (T** room : large) {
    *room = workspace;
    workspace += head.padded_positions * head.padded_width;
  }
  T** const small[] = {&head.scaled, &head.scaled_panels, &head.sum, &head.gradient_panels};
  for (T** room : small) {
    *room = workspace;
    workspace += kQueries * head.padded_width;
  }
  head.score = workspace;
  head.score_gradient = workspace + kQueries * kScoreStride;
  return head;
}

// Calls work(first, count) for the piece's blocks of queries: of every four blocks, one half of a head has the first and
// the last.
template <typename T, typename Work>
HWY_INLINE void for_blocks(const CausalAttention<T>& attention, int64_t piece, const Work& work) {
  const int64_t part = piece % attention.parts();
  for (int64_t block = 0, first = 0; first < attention.positions; ++block, first += kQueries) {
    const int64_t owner = block % 4 == 0 || block % 4 == 3 ? 0 : 1;
    if (attention.parts() == 1 || owner == part) work(first, HWY_MIN(kQueries, attention.positions - first));
  }
}

// Scores of a block: queries [first, first + count), keys [key, key + keys).
template <typename T>
HWY_INLINE void set_scores(const Head<T>& head, int64_t width, int64_t count, int64_t key, int64_t keys) {
  product<false, T>({head.scaled, width, 1}, count, head.key_columns + key * width, panel_width<T>() * width, keys,
                    width, head.score, kScoreStride);
}

// One query's scores of a block, of which `count` are of keys it may see, become weights relative to the largest so
// far; what was summed before is rescaled to that.
template <typename T>
HWY_INLINE void weigh(T* HWY_RESTRICT score, int64_t count, int64_t keys, T* largest, T* total, T* HWY_RESTRICT sum,
                      int64_t width) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = count; j < keys || j % lanes != 0; ++j) score[j] = -std::numeric_limits<T>::infinity();
  auto top = hn::Set(d, *largest);
  for (int64_t j = 0; j < keys; j += lanes) top = hn::Max(top, hn::LoadU(d, score + j));
  top = hn::MaxOfLanes(d, top);
  auto part = hn::Zero(d);
  for (int64_t j = 0; j < keys; j += lanes) {
    const auto weight = exponential(d, hn::Sub(hn::LoadU(d, score + j), top));
    part = hn::Add(part, weight);
    hn::StoreU(weight, d, score + j);
  }
  const T now = hn::GetLane(top), shrink = std::exp(*largest - now);
  *total = *total * shrink + hn::GetLane(hn::SumOfLanes(d, part));
  *largest = now;
  if (shrink == T{1}) return;
  for (int64_t j = 0; j < width; j += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, sum + j), hn::Set(d, shrink)), d, sum + j);
  }
}

template <typename T>
HWY_INLINE void scale_queries(const CausalAttention<T>& attention, const Head<T>& head, int64_t first,
                              int64_t count) {
  const int64_t width = attention.head_width;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < width; ++j)
      head.scaled[i * width + j] = head.query[(first + i) * head.stride + j] * attention.scale;
  }
}

template <typename T>
void forward_block(const CausalAttention<T>& attention, Head<T>& head, int64_t first, int64_t count) {
  const int64_t width = attention.head_width, panel = panel_width<T>();
  scale_queries(attention, head, first, count);
  clear(head.sum, count * head.padded_width);
  for (int64_t i = 0; i < count; ++i) {
    head.largest[i] = -std::numeric_limits<T>::infinity();
    head.total[i] = 0;
  }
  for (int64_t key = 0; key < first + count; key += kKeys) {
    const int64_t keys = HWY_MIN(kKeys, first + count - key);
    set_scores(head, width, count, key, keys);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t seen = HWY_MIN(first + i + 1 - key, keys);
      if (seen <= 0) {
        clear(head.score + i * kScoreStride, keys);
        continue;
      }
      weigh(head.score + i * kScoreStride, seen, keys, &head.largest[i], &head.total[i],
            head.sum + i * head.padded_width, head.padded_width);
    }
    product<true, T>({head.score, kScoreStride, 1}, count, head.value_panels + key * panel,
                     attention.positions * panel, width, keys, head.sum, head.padded_width);
  }
  for (int64_t i = 0; i < count; ++i) {
    const T share = T{1} / head.total[i];
    T* output = head.output + (first + i) * head.stride;
    for (int64_t j = 0; j < width; ++j) output[j] = head.sum[i * head.padded_width + j] * share;
    head.log_sum[first + i] = head.largest[i] + std::log(head.total[i]);
  }
}

template <typename T>
void forward_pieces(const CausalAttention<T>& attention, int64_t begin, int64_t end, T* workspace) {
  for (int64_t piece = begin; piece < end; ++piece) {
    Head<T> head = head_of(attention, piece, workspace);
    pack_transposed(head.key, head.stride, attention.positions, attention.head_width, head.key_columns);
    pack(head.value, head.stride, attention.positions, attention.head_width, head.value_panels);
    for_blocks(attention, piece,
               [&](int64_t first, int64_t count) { forward_block(attention, head, first, count); });
  }
}

// One query's scores become probabilities p, and their gradients p (dp - sum p dp).
template <typename T>
HWY_INLINE void differentiate(T* HWY_RESTRICT score, T* HWY_RESTRICT gradient, int64_t count, int64_t keys,
                              T log_sum, T mean) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = count; j < keys || j % lanes != 0; ++j) {
    score[j] = -std::numeric_limits<T>::infinity();
    gradient[j] = 0;
  }
  for (int64_t j = 0; j < keys; j += lanes) {
    const auto p = exponential(d, hn::Sub(hn::LoadU(d, score + j), hn::Set(d, log_sum)));
    hn::StoreU(p, d, score + j);
    hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, gradient + j), hn::Set(d, mean))), d, gradient + j);
  }
}

template <typename T>
void backward_block(const CausalAttention<T>& attention, Head<T>& head, int64_t first, int64_t count) {
  const int64_t width = attention.head_width, padded = head.padded_width, panel = panel_width<T>();
  const T* upstream = head.output_gradient + first * head.stride;
  scale_queries(attention, head, first, count);
  pack(head.scaled, width, count, width, head.scaled_panels);
  pack(upstream, head.stride, count, width, head.gradient_panels);
  T* mean = head.total;
  for (int64_t i = 0; i < count; ++i) {
    const T* output = head.output + (first + i) * head.stride;
    mean[i] = 0;
    for (int64_t j = 0; j < width; ++j) mean[i] += upstream[i * head.stride + j] * output[j];
  }
  clear(head.sum, count * padded);
  for (int64_t key = 0; key < first + count; key += kKeys) {
    const int64_t keys = HWY_MIN(kKeys, first + count - key);
    set_scores(head, width, count, key, keys);
    product<false, T>({upstream, head.stride, 1}, count, head.value_columns + key * width, panel * width, keys,
                      width, head.score_gradient, kScoreStride);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t seen = HWY_MAX(int64_t{0}, HWY_MIN(first + i + 1 - key, keys));
      differentiate(head.score + i * kScoreStride, head.score_gradient + i * kScoreStride, seen, keys,
                    head.log_sum[first + i], mean[i]);
    }
    product<true, T>({head.score, 1, kScoreStride}, keys, head.gradient_panels, count * panel, width, count,
                     head.value_gradient + key * padded, padded);
    product<true, T>({head.score_gradient, 1, kScoreStride}, keys, head.scaled_panels, count * panel, width, count,
                     head.key_gradient + key * padded, padded);
    product<true, T>({head.score_gradient, kScoreStride, 1}, count, head.key_panels + key * panel,
                     attention.positions * panel, width, keys, head.sum, padded);
  }
  for (int64_t i = 0; i < count; ++i) {
    T* gradient = head.query_gradient + (first + i) * head.stride;
    for (int64_t j = 0; j < width; ++j) gradient[j] = head.sum[i * padded + j] * attention.scale;
  }
}

template <typename T>
void backward_pieces(const CausalAttention<T>& attention, int64_t begin, int64_t end, T* workspace) {
  const int64_t positions = attention.positions, width = attention.head_width;
  for (int64_t piece = begin; piece < end; ++piece) {
    Head<T> head = head_of(attention, piece, workspace);
    pack_transposed(head.key, head.stride, positions, width, head.key_columns);
    pack_transposed(head.value, head.stride, positions, width, head.value_columns);
    pack(head.key, head.stride, positions, width, head.key_panels);
    clear(head.key_gradient, positions * head.padded_width);
    clear(head.value_gradient, positions * head.padded_width);
    for_blocks(attention, piece,
               [&](int64_t first, int64_t count) { backward_block(attention, head, first, count); });
    // The same place of the part's own array.
    const int64_t offset =
        head.key - attention.key + piece % attention.parts() * attention.batch * positions * head.stride;
    for (int64_t n = 0; n < positions; ++n) {
      for (int64_t j = 0; j < width; ++j) {
        attention.key_gradient[offset + n * head.stride + j] = head.key_gradient[n * head.padded_width + j];
        attention.value_gradient[offset + n * head.stride + j] = head.value_gradient[n * head.padded_width + j];
      }
    }
  }
}

// Dispatch tables hold plain functions.
void forward_float(const CausalAttention<float>& attention, int64_t begin, int64_t end, float* workspace) {
  forward_pieces(attention, begin, end, workspace);
}
void forward_double(const CausalAttention<double>& attention, int64_t begin, int64_t end, double* workspace) {
  forward_pieces(attention, begin, end, workspace);
}
void backward_float(const CausalAttention<float>& attention, int64_t begin, int64_t end, float* workspace) {
  backward_pieces(attention, begin, end, workspace);
}
void backward_double(const CausalAttention<double>& attention, int64_t begin, int64_t end, double* workspace) {
  backward_pieces(attention, begin, end, workspace);
}

}  // namespace HWY_NAMESPACE
}  // namespace depthroute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace depthroute {

HWY_EXPORT(forward_float);
HWY_EXPORT(forward_double);
HWY_EXPORT(backward_float);
HWY_EXPORT(backward_double);

template <>
void attention_forward(const CausalAttention<float>& attention, int64_t begin, int64_t end, float* workspace) {
  HWY_DYNAMIC_DISPATCH(forward_float)(attention, begin, end, workspace);
}

template <>
void attention_forward(const CausalAttention<double>& attention, int64_t begin, int64_t end, double* workspace) {
  HWY_DYNAMIC_DISPATCH(forward_double)(attention, begin, end, workspace);
}

template <>
void attention_backward(const CausalAttention<float>& attention, int64_t begin, int64_t end, float* workspace) {
  HWY_DYNAMIC_DISPATCH(backward_float)(attention, begin, end, workspace);
}

template <>
void attention_backward(const CausalAttention<double>& attention, int64_t begin, int64_t end, double* workspace) {
  HWY_DYNAMIC_DISPATCH(backward_double)(attention, begin, end, workspace);
}

}  // namespace depthroute
#endif
