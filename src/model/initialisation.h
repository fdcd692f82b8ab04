// Initial values from a counter-based generator keyed by (seed, tensor name): tensors of the same name and shape
// have the same bits in every variant, whatever else the model has and however many threads draw them. That is what
// makes runs of a study pairs.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "residual/parameters.h"

namespace depthroute {

// A float32 tensor on the CPU.
at::Tensor draw_parameter(const ParameterSpec& spec, uint64_t seed);

}  // namespace depthroute
