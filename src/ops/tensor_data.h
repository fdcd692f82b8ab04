// Tensors as the kernels take them: raw pointers.
#pragma once
#include <ATen/core/Tensor.h>

#include <type_traits>

#include "ops/bfloat16.h"

namespace depthroute {

// The first element of a dense tensor of T (Bfloat16 for bfloat16), null for an undefined one.
template <typename T>
T* data(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return reinterpret_cast<Bfloat16*>(tensor.data_ptr<at::BFloat16>());
  } else {
    return tensor.data_ptr<T>();
  }
}

}  // namespace depthroute
