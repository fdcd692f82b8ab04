#pragma once

namespace depthroute {

// Which form of an operation computes: its definition in ATen operations, or the fused kernels.
enum class Implementation { kReference, kFused };

}  // namespace depthroute
