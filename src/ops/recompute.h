// Activation checkpointing (Chen et al., arXiv 1604.06174): what a function computes on the way is not kept for the backward
// pass, but computed once more there.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace depthroute {

using TensorFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// compute(inputs), of which autograd keeps only the inputs. `inputs` must be all that has a gradient; `compute` is called
// again in the backward pass, with tensors of the same values, and must give the same bits. First derivatives only.
at::Tensor recomputed(const std::vector<at::Tensor>& inputs, TensorFunction compute);

}  // namespace depthroute
