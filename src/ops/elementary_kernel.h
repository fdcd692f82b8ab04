// The arithmetic of the fused elementary operations (definitions: ops/elementary.h) on raw pointers: no tensors, no
// threads, no allocation. T is float or double; arrays are dense and row-major. The bits of a row depend neither on
// other rows nor on the range in which it was computed; NaN and infinity stay in their row.
#pragma once
#include <cstdint>

namespace depthroute {

// Rows begin <= n < end of y = weight x rstd, rstd = 1 / sqrt(mean(x^2) + eps). x, y [N, d]; weight [d], or null for
// ones; rstd [N].
template <typename T>
struct RmsNormForward {
  int64_t width = 0;
  double eps = 0;
  const T *x = nullptr, *weight = nullptr;
  T *y = nullptr, *rstd = nullptr;
};
template <typename T>
void rms_norm_forward(const RmsNormForward<T>& norm, int64_t begin, int64_t end);

// dx = rstd (w dy - x rstd^2 mean(w dy x)). Adds dy x rstd to weight_gradient [d], unless that is null; row_sums is
// room for d values.
template <typename T>
struct RmsNormBackward {
  int64_t width = 0;
  const T *x = nullptr, *weight = nullptr, *rstd = nullptr, *dy = nullptr;
  T* dx = nullptr;
};
template <typename T>
void rms_norm_backward(const RmsNormBackward<T>& norm, int64_t begin, int64_t end, double* weight_gradient,
                       T* row_sums);

// Elements begin <= i < end of silu(gate) up, and of its gradients.
template <typename T>
void swiglu_forward(const T* gate, const T* up, T* out, int64_t begin, int64_t end);
template <typename T>
void swiglu_backward(const T* gate, const T* up, const T* gradient, T* gate_gradient, T* up_gradient, int64_t begin,
                     int64_t end);

// Tokens begin <= n < end of x [B T, heads, D], token n at position n % T: elements i and i + D/2 turned by the angle
// of the table's row, or back.
template <typename T>
struct Rotation {
  int64_t positions = 0, heads = 0, head_width = 0;
  const T *cosine = nullptr, *sine = nullptr;  // [T, D]
  const T* x = nullptr;
  T* y = nullptr;
  bool back = false;
};
template <typename T>
void rotate(const Rotation<T>& rotation, int64_t begin, int64_t end);

// Rows begin <= n < end of logits [N, V]: loss[n] = -log softmax(row)[target], and where wanted the row becomes the
// gradient of its loss.
template <typename T>
struct CrossEntropyRows {
  int64_t classes = 0;
  T* logits = nullptr;
  const int64_t* targets = nullptr;
  double* loss = nullptr;
  bool gradient_wanted = false;
};
template <typename T>
void cross_entropy_rows(const CrossEntropyRows<T>& rows, int64_t begin, int64_t end);

}  // namespace depthroute
