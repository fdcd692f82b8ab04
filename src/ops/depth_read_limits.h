// How much a depth read takes at most; apart, so that kernels need no tensor header.
#pragma once
#include <cstdint>

namespace depthroute {

inline constexpr int64_t kMaxDepthSources = 128;
inline constexpr int64_t kMaxDepthRoutes = 4;

}  // namespace depthroute
