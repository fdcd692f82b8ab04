#include "ops/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense_mix_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

// After foreach_target.h, which includes this file once for each instruction set.
#include <hwy/highway.h>

#include "ops/dense_mix_kernel.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE const T* weights_of(const DenseMixSources<T>& mix, int64_t n) {
  return mix.weight + (mix.weight_per_token ? n * mix.streams * mix.sources : 0);
}

template <int C, typename T>
void mix_forward(const DenseMixForward<T>& mix_arguments, int64_t begin, int64_t end) {
  const int64_t width = mix_arguments.width;
  for (int64_t n = begin; n < end; ++n) {
    const T* row[kMaxDepthSources];
    T* out[C];
    for (int64_t i = 0; i < mix_arguments.sources; ++i) row[i] = mix_arguments.source[i] + n * width;
    for (int c = 0; c < C; ++c) out[c] = mix_arguments.mixture[c] + n * width;
    mix<C>(row, mix_arguments.sources, weights_of(mix_arguments, n), mix_arguments.sources, width, out);
  }
}

// One vector at element j of every source's gradient: sum_c weight[c, i] dh_c.
template <int C, typename D, typename T>
HWY_INLINE void spread_tile(D d, const DenseMixBackward<T>& mix, int64_t n, const T* const* upstream,
                            const T* weight, int64_t j) {
  using V = hn::Vec<D>;
  V dh[C];
  DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) dh[c] = hn::LoadU(d, upstream[c] + j);
  for (int64_t i = 0; i < mix.sources; ++i) {
    if (mix.source_gradient[i] == nullptr) continue;
    T* out = mix.source_gradient[i] + n * mix.width + j;
    V sum = mix.assign[i] ? hn::Zero(d) : hn::LoadU(d, out);
    DEPTHROUTE_UNROLL for (int c = 0; c < C; ++c) {
      sum = hn::MulAdd(hn::Set(d, weight[c * mix.sources + i]), dh[c], sum);
    }
    hn::StoreU(sum, d, out);
  }
}

template <int C, typename T>
void mix_backward(const DenseMixBackward<T>& mix, int64_t begin, int64_t end, double* weight_sum) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = mix.width, count = C * mix.sources;
  for (int64_t n = begin; n < end; ++n) {
    const T* row[kMaxDepthSources];
    const T* upstream[C];
    for (int64_t i = 0; i < mix.sources; ++i) row[i] = mix.source[i] + n * width;
    for (int c = 0; c < C; ++c) upstream[c] = mix.mixture_gradient[c] + n * width;
    T dot[C * kMaxDepthSources];
    T* weight_gradient = mix.weight_per_token ? mix.weight_gradient + n * count : dot;
    dots<C, false>(row, mix.sources, upstream, width, 0, weight_gradient, mix.sources);
    if (!mix.weight_per_token) {
      for (int64_t k = 0; k < count; ++k) weight_sum[k] += static_cast<double>(dot[k]);
    }
    const T* weight = weights_of(mix, n);
    int64_t j = 0;
    for (; j + lanes <= width; j += lanes) spread_tile<C>(d, mix, n, upstream, weight, j);
    for (; j < width; ++j) spread_tile<C>(Single<T>(), mix, n, upstream, weight, j);
  }
}

template <typename T>
void forward_streams(const DenseMixForward<T>& mix, int64_t begin, int64_t end) {
  with_count(mix.streams, [&](auto streams) { mix_forward<streams()>(mix, begin, end); });
}

template <typename T>
void backward_streams(const DenseMixBackward<T>& mix, int64_t begin, int64_t end, double* weight_sum) {
  with_count(mix.streams, [&](auto streams) { mix_backward<streams()>(mix, begin, end, weight_sum); });
}

// Dispatch tables hold plain functions.
void forward_float(const DenseMixForward<float>& mix, int64_t begin, int64_t end) {
  forward_streams(mix, begin, end);
}
void forward_double(const DenseMixForward<double>& mix, int64_t begin, int64_t end) {
  forward_streams(mix, begin, end);
}
void backward_float(const DenseMixBackward<float>& mix, int64_t begin, int64_t end, double* weight_sum) {
  backward_streams(mix, begin, end, weight_sum);
}
void backward_double(const DenseMixBackward<double>& mix, int64_t begin, int64_t end, double* weight_sum) {
  backward_streams(mix, begin, end, weight_sum);
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
void dense_mix_forward(const DenseMixForward<float>& mix, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_float)(mix, begin, end);
}

template <>
void dense_mix_forward(const DenseMixForward<double>& mix, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(forward_double)(mix, begin, end);
}

template <>
void dense_mix_backward(const DenseMixBackward<float>& mix, int64_t begin, int64_t end, double* weight_sum) {
  HWY_DYNAMIC_DISPATCH(backward_float)(mix, begin, end, weight_sum);
}

template <>
void dense_mix_backward(const DenseMixBackward<double>& mix, int64_t begin, int64_t end, double* weight_sum) {
  HWY_DYNAMIC_DISPATCH(backward_double)(mix, begin, end, weight_sum);
}

}  // namespace depthroute
#endif
