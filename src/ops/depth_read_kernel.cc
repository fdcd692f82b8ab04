#include "ops/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/depth_read_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

// After foreach_target.h, which includes this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/depth_read_kernel.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

constexpr int64_t kRow = kMaxDepthSources;  // one row of scores or probabilities

// probability = softmax(score) over `count` elements. The rows are aligned and whole vectors long; the score's tail
// is overwritten.
template <typename T>
HWY_INLINE void softmax(T* HWY_RESTRICT score, int64_t count, T* HWY_RESTRICT probability) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = count; i % lanes != 0; ++i) score[i] = -std::numeric_limits<T>::infinity();
  auto largest = hn::Load(d, score);
  for (int64_t i = lanes; i < count; i += lanes) largest = hn::Max(largest, hn::Load(d, score + i));
  largest = hn::MaxOfLanes(d, largest);
  auto total = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto weight = exponential(d, hn::Sub(hn::Load(d, score + i), largest));
    total = hn::Add(total, weight);
    hn::Store(weight, d, probability + i);
  }
  total = hn::SumOfLanes(d, total);
  for (int64_t i = 0; i < count; i += lanes) {
    hn::Store(hn::Div(hn::Load(d, probability + i), total), d, probability + i);
  }
}

// x *= scale * weight, element by element.
template <typename D, typename T, typename S>
HWY_INLINE void scale_tile(D d, T scale, const T* weight, S* x) {
  store(d, hn::Mul(hn::Mul(load(d, x), hn::Set(d, scale)), hn::LoadU(d, weight)), x);
}

template <typename T, typename S>
HWY_INLINE void scale_row(T scale, const T* weight, int64_t width, S* x) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) scale_tile(d, scale, weight + j, x + j);
  for (; j < width; ++j) scale_tile(Single<T>(), scale, weight + j, x + j);
}

// A slice is one head of one token: slice s = n H + h of an array [N, d] starts at s (d/H). Its element (r, i) in
// an array [R, N, K, H] is at offset + (r N K + i) H.
template <typename T, typename S>
HWY_INLINE int64_t score_offset(const DepthReadSources<T, S>& read, int64_t s) {
  return s / read.heads * read.sources * read.heads + s % read.heads;
}

// Moves R rows of K values between that layout and rows of `stride`.
template <int R, typename T, typename S>
HWY_INLINE void store_scores(const DepthReadSources<T, S>& read, int64_t s, const T* row, int64_t stride,
                             T* array) {
  T* first = array + score_offset(read, s);
  for (int r = 0; r < R; ++r) {
    T* out = first + r * read.tokens * read.sources * read.heads;
    for (int64_t i = 0; i < read.sources; ++i) out[i * read.heads] = row[r * stride + i];
  }
}

template <int R, typename T, typename S>
HWY_INLINE void load_scores(const DepthReadSources<T, S>& read, int64_t s, const T* array, T* row) {
  const T* first = array + score_offset(read, s);
  for (int r = 0; r < R; ++r) {
    const T* in = first + r * read.tokens * read.sources * read.heads;
    for (int64_t i = 0; i < read.sources; ++i) row[r * kRow + i] = in[i * read.heads];
  }
}

// The scores of slice s, R rows.
template <int R, typename T, typename S>
HWY_INLINE void score_slice(const DepthReadForward<T, S>& read, int64_t s, int64_t ahead, T* score,
                            int64_t stride) {
  const int64_t width = read.width / read.heads;
  const S* row[kMaxDepthSources];
  const T* query[R];
  for (int64_t i = 0; i < read.sources; ++i) row[i] = read.source[i] + s * width;
  for (int r = 0; r < R; ++r) query[r] = read.scaled_query + r * read.width + s % read.heads * width;
  // With one route the loop is bound by its loads, and prefetches are loads, too.
  dots<R, (R > 1)>(row, read.sources, query, width, ahead, score, stride);
  for (int64_t i = 0; i < read.sources; ++i) {
    T* norm = read.reciprocal_norm[i] + s;
    if (!read.norm_known[i]) *norm = reciprocal_norm<T>(row[i], width, read.eps);
    for (int r = 0; r < R; ++r) score[r * stride + i] *= *norm;
  }
  if (read.scores != nullptr) store_scores<R>(read, s, score, stride, read.scores);
}

template <int R, typename T, typename S>
HWY_INLINE void mix_slice(const DepthReadForward<T, S>& read, int64_t s, const T* probability, int64_t stride) {
  const int64_t width = read.width / read.heads;
  const S* row[kMaxDepthSources];
  S* mixture[R];
  for (int64_t i = 0; i < read.sources; ++i) row[i] = read.source[i] + s * width;
  for (int r = 0; r < R; ++r) mixture[r] = read.mixture[r] + s * width;
  store_scores<R>(read, s, probability, stride, read.probabilities);
  mix<R>(row, read.sources, probability, stride, width, mixture);
}

// Slices begin <= s < end. The steps of a slice wait for each other (scores, softmax, mix), so a batch of slices
// takes each step together, as long as their rows stay in the first-level cache from the scores to the mix.
template <int R, typename T, typename S>
HWY_INLINE void forward_slices(const DepthReadForward<T, S>& read, int64_t begin, int64_t end) {
  constexpr int64_t kCachedBytes = 16 << 10;
  const int64_t width = read.width / read.heads;
  const int64_t stride = (read.sources + 15) / 16 * 16;  // whole vectors
  const int64_t cached = kCachedBytes / (read.sources * width * static_cast<int64_t>(sizeof(T)));
  const int64_t batch = HWY_MAX(int64_t{1}, HWY_MIN(cached, kRow / stride));
  HWY_ALIGN T score[R * kRow];
  HWY_ALIGN T probability[R * kRow];
  for (int64_t first = begin; first < end; first += batch) {
    const int64_t count = HWY_MIN(batch, end - first);
    for (int64_t b = 0; b < count; ++b) {
      // At the end of the range there is nothing ahead: the row itself.
      const int64_t ahead = first + b + batch < end ? batch * width : 0;
      score_slice<R>(read, first + b, ahead, score + b * R * stride, stride);
    }
    for (int64_t b = 0; b < count * R; ++b) softmax(score + b * stride, read.sources, probability + b * stride);
    for (int64_t b = 0; b < count; ++b) mix_slice<R>(read, first + b, probability + b * R * stride, stride);
  }
}

template <int R, typename T, typename S>
void forward_tokens(const DepthReadForward<T, S>& read, int64_t begin, int64_t end) {
  if (read.output_norm_weight == nullptr) return forward_slices<R>(read, begin * read.heads, end * read.heads);
  for (int64_t n = begin; n < end; ++n) {
    forward_slices<R>(read, n * read.heads, (n + 1) * read.heads);
    for (int r = 0; r < R; ++r) {
      S* mixture = read.mixture[r] + n * read.width;
      const T norm = reciprocal_norm<T>(mixture, read.width, read.eps);
      read.output_reciprocal_norm[r * read.tokens + n] = norm;
      scale_row(norm, read.output_norm_weight, read.width, mixture);
    }
  }
}

// What the elements of one source's row are multiplied by in the backward pass of a slice.
template <int R, typename T>
struct Coefficients {
  T upstream[R];  // p_{r,i}, of dh_r
  T query[R];     // c_{r,i} rstd_i, of u_r
  T source;       // -sum_r c_{r,i} a_{r,i} rstd_i^2 / (d/H), of S_i
};

// Elements [j, j + C vectors) of a slice: dS_i for all sources, and du_r. In a tile, what belongs to the routes is
// loaded once.
template <int R, int C, typename D, typename S, typename T>
HWY_INLINE void gradient_tile(D d, const S* const* row, int64_t rows, const Coefficients<R, T>* coefficients,
                              const T* const* upstream, const T* const* query, int64_t j, int64_t ahead,
                              const bool* assign, T* const* row_gradient, T* const* query_gradient) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V dh[R][C], u[R][C], du[R][C];
  DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) {
      dh[r][c] = hn::LoadU(d, upstream[r] + j + c * lanes);
      u[r][c] = hn::LoadU(d, query[r] + j + c * lanes);
      du[r][c] = hn::LoadU(d, query_gradient[r] + j + c * lanes);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    const Coefficients<R, T>& coefficient = coefficients[i];
    const S* x_begin = row[i] + j;
    T* gradient = row_gradient[i];
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) {
      const V x = load(d, x_begin + c * lanes);
      DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) du[r][c] =
          hn::MulAdd(hn::Set(d, coefficient.query[r]), x, du[r][c]);
      if (gradient == nullptr) continue;
      T* out = gradient + j + c * lanes;
      hwy::Prefetch(out + ahead);
      const V old = assign[i] ? hn::Zero(d) : hn::LoadU(d, out);
      V sum = hn::MulAdd(hn::Set(d, coefficient.source), x, old);
      DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
        sum = hn::MulAdd(hn::Set(d, coefficient.upstream[r]), dh[r][c], sum);
        sum = hn::MulAdd(hn::Set(d, coefficient.query[r]), u[r][c], sum);
      }
      hn::StoreU(sum, d, out);
    }
  }
  DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) hn::StoreU(du[r][c], d, query_gradient[r] + j + c * lanes);
  }
}

// score, probability: rows of kRow; dot: dh_r . S_i, likewise.
template <int R, typename T, typename S>
HWY_INLINE void set_coefficients(const DepthReadBackward<T, S>& read, int64_t n, int64_t h, const T* score,
                                 const T* probability, const T* dot, Coefficients<R, T>* coefficients) {
  T mean[R] = {};
  for (int r = 0; r < R; ++r) {
    for (int64_t i = 0; i < read.sources; ++i) mean[r] += probability[r * kRow + i] * dot[r * kRow + i];
  }
  const T scale = T{-1} / static_cast<T>(read.width / read.heads);
  for (int64_t i = 0; i < read.sources; ++i) {
    const T norm = read.reciprocal_norm[i][n * read.heads + h];
    T source = 0;
    for (int r = 0; r < R; ++r) {
      const int64_t k = r * kRow + i;
      const T query = probability[k] * (dot[k] - mean[r]) * norm;
      coefficients[i].upstream[r] = probability[k];
      coefficients[i].query[r] = query;
      source += query * score[k];
    }
    coefficients[i].source = source * norm * scale;
  }
}

// One head slice of one token; upstream: R rows [d] of dh, query_gradient: R rows [d] of du.
template <int R, typename T, typename S>
HWY_INLINE void backward_slice(const DepthReadBackward<T, S>& read, int64_t n, int64_t h, int64_t ahead,
                               const T* const* upstream, T* query_gradient) {
  const int64_t width = read.width / read.heads, begin = n * read.width + h * width;
  const S* row[kMaxDepthSources];
  T* row_gradient[kMaxDepthSources];
  for (int64_t i = 0; i < read.sources; ++i) {
    row[i] = read.source[i] + begin;
    row_gradient[i] = read.source_gradient[i] == nullptr ? nullptr : read.source_gradient[i] + begin;
  }
  const T* dh[R];
  const T* u[R];
  T* du[R];
  for (int r = 0; r < R; ++r) {
    dh[r] = upstream[r] + h * width;
    u[r] = read.scaled_query + r * read.width + h * width;
    du[r] = query_gradient + r * read.width + h * width;
  }

  T score[R * kRow], probability[R * kRow], dot[R * kRow];
  Coefficients<R, T> coefficients[kMaxDepthSources];
  load_scores<R>(read, n * read.heads + h, read.scores, score);
  load_scores<R>(read, n * read.heads + h, read.probabilities, probability);
  dots<R, (R > 1)>(row, read.sources, dh, width, ahead, dot, kRow);
  set_coefficients<R>(read, n, h, score, probability, dot, coefficients);

  constexpr int kTile = R <= 2 ? 2 : 1;
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + kTile * lanes <= width; j += kTile * lanes) {
    gradient_tile<R, kTile>(d, row, read.sources, coefficients, dh, u, j, ahead, read.assign, row_gradient, du);
  }
  for (; j + lanes <= width; j += lanes) {
    gradient_tile<R, 1>(d, row, read.sources, coefficients, dh, u, j, ahead, read.assign, row_gradient, du);
  }
  for (; j < width; ++j) {
    gradient_tile<R, 1>(Single<T>(), row, read.sources, coefficients, dh, u, j, ahead, read.assign, row_gradient,
                        du);
  }
}

// The mixtures of a token once more, from the sources and the probabilities: R rows [d].
template <int R, typename T, typename S>
HWY_INLINE void recompute_mixtures(const DepthReadBackward<T, S>& read, int64_t n, T* mixture) {
  const int64_t width = read.width / read.heads;
  for (int64_t h = 0; h < read.heads; ++h) {
    const S* row[kMaxDepthSources];
    T* out[R];
    T probability[R * kRow];
    for (int64_t i = 0; i < read.sources; ++i) row[i] = read.source[i] + n * read.width + h * width;
    for (int r = 0; r < R; ++r) out[r] = mixture + r * read.width + h * width;
    load_scores<R>(read, n * read.heads + h, read.probabilities, probability);
    mix<R>(row, read.sources, probability, kRow, width, out);
  }
}

// y = g x rstd with rstd = 1 / sqrt(mean(x^2) + eps): turns mixture (x) into
// dx = rstd (g dy - x rstd^2 mean(g dy x)) and adds dy x rstd to weight_gradient.
template <typename T>
HWY_INLINE void output_norm_backward(const T* HWY_RESTRICT upstream, const T* HWY_RESTRICT weight, T norm,
                                     int64_t width, T* HWY_RESTRICT mixture, T* HWY_RESTRICT weight_gradient) {
  T partial[8] = {};
  for (int64_t j = 0; j < width; ++j) partial[j % 8] += weight[j] * upstream[j] * mixture[j];
  T mean = 0;
  for (T sum : partial) mean += sum / static_cast<T>(width);
  for (int64_t j = 0; j < width; ++j) {
    weight_gradient[j] += upstream[j] * mixture[j] * norm;
    mixture[j] = norm * (weight[j] * upstream[j] - mixture[j] * norm * norm * mean);
  }
}

// Sums over tokens are held in T for at most this many, then moved to double.
constexpr int64_t kTokensInSingle = 64;

template <typename T>
HWY_INLINE void flush(T* sums, int64_t count, double* total) {
  for (int64_t j = 0; j < count; ++j) {
    total[j] += static_cast<double>(sums[j]);
    sums[j] = 0;
  }
}

// A row of what is stored, as T: the row itself, or the room, filled from it.
template <typename T, typename S>
HWY_INLINE const T* widened(const S* row, int64_t width, T* room) {
  if constexpr (std::is_same_v<S, T>) {
    return row;
  } else {
    const Vector<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t j = 0;
    for (; j + lanes <= width; j += lanes) hn::StoreU(load(d, row + j), d, room + j);
    for (; j < width; ++j) hn::StoreU(load(Single<T>(), row + j), Single<T>(), room + j);
    return room;
  }
}

// Workspace: R + 1 rows of sums (du_r, then the gradient of g), then R rows: the gradients of the mixtures, where they
// are not used as they are stored; then room for a row to be widened.
template <int R, typename T, typename S>
void backward_tokens(const DepthReadBackward<T, S>& read, int64_t begin, int64_t end, double* parameter_gradient,
                     T* workspace) {
  const int64_t width = read.width;
  T* sums = workspace;
  T* rows = workspace + (R + 1) * width;
  for (int64_t j = 0; j < depth_read_workspace(R, width); ++j) workspace[j] = 0;
  for (int64_t n = begin; n < end; ++n) {
    const T* upstream[R];
    if (read.output_norm_weight != nullptr) recompute_mixtures<R>(read, n, rows);
    for (int r = 0; r < R; ++r) {
      T* row = rows + r * width;
      const S* gradient = read.mixture_gradient[r] == nullptr ? nullptr : read.mixture_gradient[r] + n * width;
      upstream[r] = row;
      if (gradient == nullptr) {
        for (int64_t j = 0; j < width; ++j) row[j] = 0;
      } else if (read.output_norm_weight == nullptr) {
        upstream[r] = widened(gradient, width, row);
      } else {
        output_norm_backward(widened(gradient, width, rows + R * width), read.output_norm_weight,
                             read.output_reciprocal_norm[r * read.tokens + n], width, row, sums + R * width);
      }
    }
    const int64_t ahead = n + 1 < end ? width : 0;
    for (int64_t h = 0; h < read.heads; ++h) backward_slice<R>(read, n, h, ahead, upstream, sums);
    if ((n - begin) % kTokensInSingle == kTokensInSingle - 1) flush(sums, (R + 1) * width, parameter_gradient);
  }
  flush(sums, (R + 1) * width, parameter_gradient);
}

// Dispatch tables hold plain functions.
#define DEPTHROUTE_DEPTH_READ(name, T, S)                                                                 \
  void forward_##name(const DepthReadForward<T, S>& read, int64_t begin, int64_t end) {                   \
    with_count(read.routes, [&](auto routes) { forward_tokens<routes()>(read, begin, end); });            \
  }                                                                                                       \
  void backward_##name(const DepthReadBackward<T, S>& read, int64_t begin, int64_t end, double* gradient, \
                       T* workspace) {                                                                    \
    with_count(read.routes,                                                                               \
               [&](auto routes) { backward_tokens<routes()>(read, begin, end, gradient, workspace); });   \
  }

DEPTHROUTE_DEPTH_READ(float, float, float)
DEPTHROUTE_DEPTH_READ(double, double, double)
DEPTHROUTE_DEPTH_READ(bfloat16, float, Bfloat16)
#undef DEPTHROUTE_DEPTH_READ

}  // namespace HWY_NAMESPACE
}  // namespace depthroute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace depthroute {

#define DEPTHROUTE_DEPTH_READ(name, T, S)                                                   \
  HWY_EXPORT(forward_##name);                                                               \
  HWY_EXPORT(backward_##name);                                                              \
  template <>                                                                               \
  void depth_read_forward(const DepthReadForward<T, S>& read, int64_t begin, int64_t end) { \
    HWY_DYNAMIC_DISPATCH(forward_##name)(read, begin, end);                                 \
  }                                                                                         \
  template <>                                                                               \
  void depth_read_backward(const DepthReadBackward<T, S>& read, int64_t begin, int64_t end, \
                           double* parameter_gradient, T* workspace) {                      \
    HWY_DYNAMIC_DISPATCH(backward_##name)(read, begin, end, parameter_gradient, workspace); \
  }

DEPTHROUTE_DEPTH_READ(float, float, float)
DEPTHROUTE_DEPTH_READ(double, double, double)
DEPTHROUTE_DEPTH_READ(bfloat16, float, Bfloat16)
#undef DEPTHROUTE_DEPTH_READ

}  // namespace depthroute
#endif
