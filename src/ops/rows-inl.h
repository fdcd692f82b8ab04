// Rows of d values, on raw pointers, for kernels that are compiled for several instruction sets (Highway): dot products
// of several rows with several vectors, and weighted sums of rows. Included once for each instruction set.
#if defined(DEPTHROUTE_OPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEPTHROUTE_OPS_ROWS_INL_H_
#undef DEPTHROUTE_OPS_ROWS_INL_H_
#else
#define DEPTHROUTE_OPS_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loops over the routes, sources and vectors of a tile are unrolled, so that its sums stay in registers.
#define DEPTHROUTE_UNROLL _Pragma("GCC unroll 16")

template <typename T>
using Vector = hn::ScalableTag<T>;
// Elements that do not fill a vector go one by one through the same operations.
template <typename T>
using Single = hn::CappedTag<T, 1>;

// Highway's exponential of NaN is zero.
template <typename D, typename V>
HWY_INLINE V exponential(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

// Vectors of what is computed in (T) from and to what is stored (T, or bfloat16 for float).
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bfloat16* from) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::Rebind<uint32_t, D> wide;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D, class V, typename T>
HWY_INLINE void store(D d, V value, T* to) {
  hn::StoreU(value, d, to);
}

// Rounded to the nearest, ties to even; NaN stays NaN.
template <class D, class V>
HWY_INLINE void store(D /*d*/, V value, Bfloat16* to) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::Rebind<uint32_t, D> wide;
  const hn::Rebind<int32_t, D> with_sign;
  const auto bits = hn::BitCast(wide, value);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
  const auto rounded = hn::Add(bits, hn::Add(last, hn::Set(wide, 0x7FFFu)));
  const auto chosen =
      hn::IfThenElse(hn::RebindMask(wide, hn::IsNaN(value)), hn::Or(bits, hn::Set(wide, 0x400000u)), rounded);
  hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(with_sign, hn::ShiftRight<16>(chosen))), narrow,
             reinterpret_cast<uint16_t*>(to));
}

// out[r * stride + g] = row[g] . vector[r]. The two sums of a pair depend on the width alone, not on the tile it is
// in. What lies `ahead` elements behind the rows is brought into the cache meanwhile.
template <int G, int R, bool kPrefetch, typename S, typename Q, typename T>
HWY_INLINE void dot_tile(const S* const* row, const Q* const* vector, int64_t width, int64_t ahead, T* out,
                         int64_t stride) {
  const Vector<T> d;
  const Single<T> single;
  using V = hn::Vec<Vector<T>>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V even[G][R], odd[G][R];
  DEPTHROUTE_UNROLL for (int g = 0; g < G; ++g) {
    DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) even[g][r] = odd[g][r] = hn::Zero(d);
  }
  int64_t j = 0;
  for (; j + 2 * lanes <= width; j += 2 * lanes) {
    V first[R], second[R];
    DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
      first[r] = load(d, vector[r] + j);
      second[r] = load(d, vector[r] + j + lanes);
    }
    DEPTHROUTE_UNROLL for (int g = 0; g < G; ++g) {
      const V x = load(d, row[g] + j), y = load(d, row[g] + j + lanes);
      if (kPrefetch) {
        hwy::Prefetch(row[g] + j + ahead);
        if (sizeof(V) >= 64) hwy::Prefetch(row[g] + j + ahead + lanes);
      }
      DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
        even[g][r] = hn::MulAdd(x, first[r], even[g][r]);
        odd[g][r] = hn::MulAdd(y, second[r], odd[g][r]);
      }
    }
  }
  if (j + lanes <= width) {
    DEPTHROUTE_UNROLL for (int g = 0; g < G; ++g) {
      const V x = load(d, row[g] + j);
      DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
        even[g][r] = hn::MulAdd(x, load(d, vector[r] + j), even[g][r]);
      }
    }
    j += lanes;
  }
  DEPTHROUTE_UNROLL for (int g = 0; g < G; ++g) {
    DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
      auto rest = hn::Zero(single);
      for (int64_t k = j; k < width; ++k) {
        rest = hn::MulAdd(load(single, row[g] + k), load(single, vector[r] + k), rest);
      }
      out[r * stride + g] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[g][r], odd[g][r]))) + hn::GetLane(rest);
    }
  }
}

// 1 / sqrt(mean(x^2) + eps)
template <typename T, typename S>
HWY_INLINE T reciprocal_norm(const S* x, int64_t width, double eps) {
  T square = 0;
  dot_tile<1, 1, false>(&x, &x, width, 0, &square, 1);
  return T{1} / std::sqrt(square / static_cast<T>(width) + static_cast<T>(eps));
}

// Calls work with the count, 1 to 4, as a constant: the routes or streams for which a kernel is compiled.
template <typename Work>
HWY_INLINE void with_count(int64_t count, const Work& work) {
  switch (count) {
    case 1:
      return work(std::integral_constant<int, 1>());
    case 2:
      return work(std::integral_constant<int, 2>());
    case 3:
      return work(std::integral_constant<int, 3>());
    default:
      return work(std::integral_constant<int, 4>());
  }
}

// out[r * stride + i] = row[i] . vector[r] for all rows, in tiles of eight independent sums: as many as two
// multiply-add units with a latency of four cycles need.
template <int R, bool kPrefetch, typename S, typename T>
HWY_INLINE void dots(const S* const* row, int64_t rows, const T* const* vector, int64_t width, int64_t ahead,
                     T* out, int64_t stride) {
  constexpr int kTile = R == 1 ? 4 : R == 2 ? 2 : 1;
  int64_t i = 0;
  for (; i + kTile <= rows; i += kTile)
    dot_tile<kTile, R, kPrefetch>(row + i, vector, width, ahead, out + i, stride);
  for (; i < rows; ++i) dot_tile<1, R, kPrefetch>(row + i, vector, width, ahead, out + i, stride);
}

// Elements [j, j + C vectors) of out[r] = sum_i probability[r * stride + i] row[i].
template <int R, int C, typename D, typename S, typename T, typename O>
HWY_INLINE void mix_tile(D d, const S* const* row, int64_t rows, const T* probability, int64_t stride, int64_t j,
                         O* const* out) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[R][C];
  DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) sum[r][c] = hn::Zero(d);
  }
  for (int64_t i = 0; i < rows; ++i) {
    V weight[R];
    DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) weight[r] = hn::Set(d, probability[r * stride + i]);
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) {
      const V x = load(d, row[i] + j + c * lanes);
      DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) sum[r][c] = hn::MulAdd(weight[r], x, sum[r][c]);
    }
  }
  DEPTHROUTE_UNROLL for (int r = 0; r < R; ++r) {
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) store(d, sum[r][c], out[r] + j + c * lanes);
  }
}

template <int R, typename S, typename T, typename O>
HWY_INLINE void mix(const S* const* row, int64_t rows, const T* probability, int64_t stride, int64_t width,
                    O* const* out) {
  constexpr int kTile = R == 1 ? 8 : R == 2 ? 4 : 2;
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + kTile * lanes <= width; j += kTile * lanes)
    mix_tile<R, kTile>(d, row, rows, probability, stride, j, out);
  for (; j + lanes <= width; j += lanes) mix_tile<R, 1>(d, row, rows, probability, stride, j, out);
  for (; j < width; ++j) mix_tile<R, 1>(Single<T>(), row, rows, probability, stride, j, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace depthroute
HWY_AFTER_NAMESPACE();
#endif
