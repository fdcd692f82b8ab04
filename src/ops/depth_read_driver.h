// The fused depth read on tensors, without autograd: the kernel of ops/depth_read_kernel.h with threads and the memory that
// it writes to. What differentiates it is in ops/depth_read_fused.h and operators/operators.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace depthroute {

// Dense tensors on the CPU that have passed check_depth_read: a read's arguments and what its backward pass needs. Sources,
// mixtures and the mixtures' gradients are of the dtype of the arguments; all else is of the one that is computed in,
// float32 for bfloat16.
struct DepthReadTensors {
  std::vector<at::Tensor> sources;           // K of [..., d]
  std::vector<at::Tensor> reciprocal_norms;  // K of [N, H]
  std::vector<at::Tensor> queries;           // R of [d]
  at::Tensor key_weight, output_weight;      // [d]; output_weight may be undefined
  at::Tensor scores, probabilities;          // [R, N, K, H]
  at::Tensor output_norm;                    // [R, N] where there is an output_weight

  int64_t tokens() const { return reciprocal_norms[0].size(0); }
  int64_t width() const { return key_weight.size(0); }
};

// The options of what is computed from a tensor: float32 for bfloat16, otherwise its own.
at::TensorOptions arithmetic_options(const at::Tensor& tensor);
// A query or weight as DepthReadTensors has it: dense, in the dtype of the arithmetic.
at::Tensor arithmetic_parameter(const at::Tensor& parameter);

// The R mixtures. Sets probabilities, output_norm and, where they are kept, scores; fills the norms of sources that are not
// known yet.
std::vector<at::Tensor> compute_depth_read(DepthReadTensors* read, const std::vector<bool>& norm_known,
                                           int64_t heads, double eps, bool keep_scores);

// Reads in two phases (Attention Residuals, arXiv 2603.15031, algorithm 1; ops/depth_merge_kernel.h). The reads of a block share
// its completed sources; each but the first reads the running partial sum, too.
struct PlannedRead {
  std::vector<at::Tensor> queries;  // R of [d]
  at::Tensor key_norm_weight;       // [d]
};
// What the first phase knows of a read.
struct DepthReadPhase {
  std::vector<at::Tensor> mixtures;  // over the completed sources
  at::Tensor scores, probabilities;  // [R, N, K, H]
};

// Rows of d values that the reads of a block move for a token: over `completed` sources, with so many routes each.
int64_t one_phase_rows(int64_t completed, const std::vector<int64_t>& routes);
int64_t two_phase_rows(int64_t completed, const std::vector<int64_t>& routes);

// The first phase of all reads, over dense completed sources. Fills the norms that are not known yet.
std::vector<DepthReadPhase> compute_first_phase(const std::vector<at::Tensor>& completed,
                                                const std::vector<at::Tensor>& reciprocal_norms,
                                                const std::vector<bool>& norm_known,
                                                const std::vector<PlannedRead>& reads, int64_t heads, double eps);

// As compute_depth_read, where the last source is the partial sum and the phase that of the others; the phase's mixtures become
// the result's. Without a partial sum (as many sources as the phase saw) the phase is the result.
std::vector<at::Tensor> finish_depth_read(DepthReadTensors* read, DepthReadPhase phase, bool partial_norm_known,
                                          int64_t heads, double eps, bool keep_scores);

// Where the gradient of a source goes: an undefined sum where it is not wanted; `assign` says that the sum's content is
// undefined so far.
struct SourceGradientSum {
  at::Tensor sum;  // [..., d]
  bool assign = false;
};

// From the gradients of the mixtures (dense; undefined ones are zero): adds to the sums, and returns the gradients of the
// queries, of key_weight and, if there is one, of output_weight, in the dtype of the arguments.
std::vector<at::Tensor> differentiate_depth_read(const DepthReadTensors& read, int64_t heads,
                                                 const std::vector<at::Tensor>& mixture_gradients,
                                                 const std::vector<SourceGradientSum>& source_gradients);

}  // namespace depthroute
