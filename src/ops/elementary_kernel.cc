#include "ops/instruction_sets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/elementary_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

// After foreach_target.h, which includes this file once for each instruction set.
#include <hwy/highway.h>

#include <cmath>

#include "ops/elementary_kernel.h"
#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace depthroute {
namespace HWY_NAMESPACE {

// Calls work(tag, j) for whole vectors from begin on, then one by one for the rest.
template <typename T, typename Work>
HWY_INLINE void for_vectors(int64_t begin, int64_t end, const Work& work) {
  const Vector<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = begin;
  for (; j + lanes <= end; j += lanes) work(d, j);
  for (; j < end; ++j) work(Single<T>(), j);
}

template <typename T>
void norm_forward(const RmsNormForward<T>& norm, int64_t begin, int64_t end) {
  const int64_t width = norm.width;
  for (int64_t n = begin; n < end; ++n) {
    const T* x = norm.x + n * width;
    T* y = norm.y + n * width;
    const T rstd = reciprocal_norm<T>(x, width, norm.eps);
    norm.rstd[n] = rstd;
    for_vectors<T>(0, width, [&](auto d, int64_t j) HWY_ATTR {
      auto value = hn::Mul(hn::LoadU(d, x + j), hn::Set(d, rstd));
      if (norm.weight != nullptr) value = hn::Mul(value, hn::LoadU(d, norm.weight + j));
      hn::StoreU(value, d, y + j);
    });
  }
}

// Sums over rows are held in T for at most this many, then moved to double.
constexpr int64_t kRowsInSingle = 64;

template <typename T>
void norm_backward(const RmsNormBackward<T>& norm, int64_t begin, int64_t end, double* weight_gradient,
                   T* row_sums) {
  const int64_t width = norm.width;
  auto flush = [&] {
    for (int64_t j = 0; j < width; ++j) {
      weight_gradient[j] += static_cast<double>(row_sums[j]);
      row_sums[j] = 0;
    }
  };
  const bool sums_wanted = weight_gradient != nullptr;
  if (sums_wanted) {
    for (int64_t j = 0; j < width; ++j) row_sums[j] = 0;
  }
  for (int64_t n = begin; n < end; ++n) {
    const T *x = norm.x + n * width, *dy = norm.dy + n * width;
    T* dx = norm.dx + n * width;
    const T rstd = norm.rstd[n];
    // dx holds w dy for a moment.
    for_vectors<T>(0, width, [&](auto d, int64_t j) HWY_ATTR {
      auto value = hn::LoadU(d, dy + j);
      if (norm.weight != nullptr) value = hn::Mul(value, hn::LoadU(d, norm.weight + j));
      hn::StoreU(value, d, dx + j);
    });
    T dot = 0;
    const T* weighted = dx;
    dot_tile<1, 1, false>(&weighted, &x, width, 0, &dot, 1);
    const T factor = -rstd * rstd * rstd * dot / static_cast<T>(width);
    for_vectors<T>(0, width, [&](auto d, int64_t j) HWY_ATTR {
      const auto value = hn::LoadU(d, x + j);
      if (sums_wanted) {
        const auto sum =
            hn::MulAdd(hn::Mul(hn::LoadU(d, dy + j), hn::Set(d, rstd)), value, hn::LoadU(d, row_sums + j));
        hn::StoreU(sum, d, row_sums + j);
      }
      hn::StoreU(hn::MulAdd(hn::Set(d, factor), value, hn::Mul(hn::Set(d, rstd), hn::LoadU(d, dx + j))), d, dx + j);
    });
    if (sums_wanted && (n - begin) % kRowsInSingle == kRowsInSingle - 1) flush();
  }
  if (sums_wanted) flush();
}

template <typename D, typename V>
HWY_INLINE V sigmoid(D d, V x) {
  using T = hn::TFromD<D>;
  return hn::Div(hn::Set(d, T{1}), hn::Add(hn::Set(d, T{1}), exponential(d, hn::Neg(x))));
}

template <typename T>
void gate_forward(const T* gate, const T* up, T* out, int64_t begin, int64_t end) {
  for_vectors<T>(begin, end, [&](auto d, int64_t j) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + j);
    hn::StoreU(hn::Mul(hn::Mul(g, sigmoid(d, g)), hn::LoadU(d, up + j)), d, out + j);
  });
}

template <typename T>
void gate_backward(const T* gate, const T* up, const T* gradient, T* gate_gradient, T* up_gradient, int64_t begin,
                   int64_t end) {
  for_vectors<T>(begin, end, [&](auto d, int64_t j) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + j), s = sigmoid(d, g), dy = hn::LoadU(d, gradient + j),
               one = hn::Set(d, T{1});
    const auto silu = hn::Mul(g, s);
    // s (1 + g (1 - s))
    const auto slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
    hn::StoreU(hn::Mul(dy, silu), d, up_gradient + j);
    hn::StoreU(hn::Mul(hn::Mul(dy, hn::LoadU(d, up + j)), slope), d, gate_gradient + j);
  });
}

template <typename T>
void rotate_tokens(const Rotation<T>& rotation, int64_t begin, int64_t end) {
  const int64_t head_width = rotation.head_width, half = head_width / 2;
  const T sign = rotation.back ? T{-1} : T{1};
  for (int64_t n = begin; n < end; ++n) {
    const T *cosine = rotation.cosine + n % rotation.positions * head_width,
            *sine = rotation.sine + n % rotation.positions * head_width;
    for (int64_t h = 0; h < rotation.heads; ++h) {
      const T* x = rotation.x + (n * rotation.heads + h) * head_width;
      T* y = rotation.y + (n * rotation.heads + h) * head_width;
      for_vectors<T>(0, half, [&](auto d, int64_t j) HWY_ATTR {
        const auto first = hn::LoadU(d, x + j), second = hn::LoadU(d, x + half + j);
        const auto c = hn::LoadU(d, cosine + j), s = hn::Mul(hn::Set(d, sign), hn::LoadU(d, sine + j));
        hn::StoreU(hn::NegMulAdd(second, s, hn::Mul(first, c)), d, y + j);
        hn::StoreU(hn::MulAdd(first, s, hn::Mul(second, c)), d, y + half + j);
      });
    }
  }
}

template <typename T>
void loss_rows(const CrossEntropyRows<T>& rows, int64_t begin, int64_t end) {
  const Vector<T> tag;
  const Single<T> single;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  const int64_t classes = rows.classes, whole = classes / lanes * lanes;
  for (int64_t n = begin; n < end; ++n) {
    T* row = rows.logits + n * classes;
    auto largest = hn::Set(tag, row[0]);
    for (int64_t j = 0; j < whole; j += lanes) largest = hn::Max(largest, hn::LoadU(tag, row + j));
    T most = hn::GetLane(hn::MaxOfLanes(tag, largest));
    for (int64_t j = whole; j < classes; ++j) most = row[j] > most ? row[j] : most;

    const T target_logit = row[rows.targets[n]];
    // The exponentials are kept in the row where the gradient wants them.
    auto sum = hn::Zero(tag);
    auto rest = hn::Zero(single);
    for (int64_t j = 0; j < whole; j += lanes) {
      const auto weight = exponential(tag, hn::Sub(hn::LoadU(tag, row + j), hn::Set(tag, most)));
      sum = hn::Add(sum, weight);
      if (rows.gradient_wanted) hn::StoreU(weight, tag, row + j);
    }
    for (int64_t j = whole; j < classes; ++j) {
      const auto weight = exponential(single, hn::Sub(hn::LoadU(single, row + j), hn::Set(single, most)));
      rest = hn::Add(rest, weight);
      if (rows.gradient_wanted) hn::StoreU(weight, single, row + j);
    }
    const T total = hn::GetLane(hn::SumOfLanes(tag, sum)) + hn::GetLane(rest);
    rows.loss[n] =
        std::log(static_cast<double>(total)) + static_cast<double>(most) - static_cast<double>(target_logit);
    if (!rows.gradient_wanted) continue;
    const T scale = T{1} / total;
    for_vectors<T>(0, classes, [&](auto d, int64_t j) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, scale)), d, row + j);
    });
    row[rows.targets[n]] -= T{1};
  }
}

// Dispatch tables hold plain functions.
#define DEPTHROUTE_FOR_TYPE(T, NAME)                                                                         \
  void norm_forward_##NAME(const RmsNormForward<T>& norm, int64_t begin, int64_t end) {                      \
    norm_forward(norm, begin, end);                                                                          \
  }                                                                                                          \
  void norm_backward_##NAME(const RmsNormBackward<T>& norm, int64_t begin, int64_t end, double* gradient,    \
                            T* sums) {                                                                       \
    norm_backward(norm, begin, end, gradient, sums);                                                         \
  }                                                                                                          \
  void gate_forward_##NAME(const T* gate, const T* up, T* out, int64_t begin, int64_t end) {                 \
    gate_forward(gate, up, out, begin, end);                                                                 \
  }                                                                                                          \
  void gate_backward_##NAME(const T* gate, const T* up, const T* gradient, T* gate_gradient, T* up_gradient, \
                            int64_t begin, int64_t end) {                                                    \
    gate_backward(gate, up, gradient, gate_gradient, up_gradient, begin, end);                               \
  }                                                                                                          \
  void rotate_##NAME(const Rotation<T>& rotation, int64_t begin, int64_t end) {                              \
    rotate_tokens(rotation, begin, end);                                                                     \
  }                                                                                                          \
  void loss_##NAME(const CrossEntropyRows<T>& rows, int64_t begin, int64_t end) {                            \
    loss_rows(rows, begin, end);                                                                             \
  }

DEPTHROUTE_FOR_TYPE(float, float)
DEPTHROUTE_FOR_TYPE(double, double)
#undef DEPTHROUTE_FOR_TYPE

}  // namespace HWY_NAMESPACE
}  // namespace depthroute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace depthroute {

#define DEPTHROUTE_FOR_TYPE(T, NAME)                                                                          \
  HWY_EXPORT(norm_forward_##NAME);                                                                            \
  HWY_EXPORT(norm_backward_##NAME);                                                                           \
  HWY_EXPORT(gate_forward_##NAME);                                                                            \
  HWY_EXPORT(gate_backward_##NAME);                                                                           \
  HWY_EXPORT(rotate_##NAME);                                                                                  \
  HWY_EXPORT(loss_##NAME);                                                                                    \
  template <>                                                                                                 \
  void rms_norm_forward(const RmsNormForward<T>& norm, int64_t begin, int64_t end) {                          \
    HWY_DYNAMIC_DISPATCH(norm_forward_##NAME)(norm, begin, end);                                              \
  }                                                                                                           \
  template <>                                                                                                 \
  void rms_norm_backward(const RmsNormBackward<T>& norm, int64_t begin, int64_t end, double* weight_gradient, \
                         T* row_sums) {                                                                       \
    HWY_DYNAMIC_DISPATCH(norm_backward_##NAME)(norm, begin, end, weight_gradient, row_sums);                  \
  }                                                                                                           \
  template <>                                                                                                 \
  void swiglu_forward(const T* gate, const T* up, T* out, int64_t begin, int64_t end) {                       \
    HWY_DYNAMIC_DISPATCH(gate_forward_##NAME)(gate, up, out, begin, end);                                     \
  }                                                                                                           \
  template <>                                                                                                 \
  void swiglu_backward(const T* gate, const T* up, const T* gradient, T* gate_gradient, T* up_gradient,       \
                       int64_t begin, int64_t end) {                                                          \
    HWY_DYNAMIC_DISPATCH(gate_backward_##NAME)(gate, up, gradient, gate_gradient, up_gradient, begin, end);   \
  }                                                                                                           \
  template <>                                                                                                 \
  void rotate(const Rotation<T>& rotation, int64_t begin, int64_t end) {                                      \
    HWY_DYNAMIC_DISPATCH(rotate_##NAME)(rotation, begin, end);                                                \
  }                                                                                                           \
  template <>                                                                                                 \
  void cross_entropy_rows(const CrossEntropyRows<T>& rows, int64_t begin, int64_t end) {                      \
    HWY_DYNAMIC_DISPATCH(loss_##NAME)(rows, begin, end);                                                      \
  }

DEPTHROUTE_FOR_TYPE(float, float)
DEPTHROUTE_FOR_TYPE(double, double)
#undef DEPTHROUTE_FOR_TYPE

}  // namespace depthroute
#endif
