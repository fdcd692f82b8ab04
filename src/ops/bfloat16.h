// Storage in half of a float; apart, so that kernels need no tensor header.
#pragma once
#include <cstdint>

namespace depthroute {

// The upper half of a float. Arithmetic is in float.
struct Bfloat16 {
  uint16_t bits;
};

}  // namespace depthroute
