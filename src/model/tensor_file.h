// Tensors in safetensors files.
#pragma once
#include <ATen/core/Tensor.h>

#include "io/safetensors.h"

namespace depthroute {

// A copy, on the CPU. InputError for a dtype that has no tensor counterpart here (only F64, F32, BF16, I64 and I32
// have).
at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name);

// A view of a contiguous CPU tensor, which must outlive it.
SafetensorsEntry view_as_entry(const at::Tensor& tensor);

}  // namespace depthroute
