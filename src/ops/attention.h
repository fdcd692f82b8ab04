// Causal self-attention over the positions of a window: softmax(query key^T / sqrt(D)) value, where a position sees itself and
// those before (Vaswani et al., arXiv 1706.03762).
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/implementation.h"

namespace depthroute {

// All [B, T, heads, D] of one floating dtype, also the result. The reference form is LibTorch's
// scaled_dot_product_attention; the fused one, for the CPU and first derivatives, computes no score above the diagonal
// but in the blocks that it cuts, and takes and returns the layout of the projections around it.
// InputError where the shapes differ.
at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            Implementation implementation);

}  // namespace depthroute
