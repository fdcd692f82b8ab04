// The fused depth read on the CPU: the contract of depth_read_reference (ops/depth_read.h) on the kernel of
// ops/depth_read_kernel.h, with autograd.
//
// Every source is read by many later sublayers. Were its gradient a fresh tensor from each of them, autograd's
// additions would cost several times the traffic of the reads. So the reads of a source share one accumulator, into
// which their backward adds in place:
//
//   * a source has a token, an empty tensor that autograd takes for a function of the source;
//   * a read takes the tokens of its sources as its inputs, not the sources. Autograd therefore runs the backward
//     of all reads that contribute to the loss before that of the token; each adds to the accumulator and returns
//     no gradient for the token;
//   * the token's backward hands the finished accumulator to autograd as the gradient of the source, where the
//     gradients of other uses of the source are added as usual.
//
// What a read keeps for its backward (the sources, which exist anyway, R N K H scores and probabilities, queries
// and weights) is freed by autograd when that has run; the accumulator exists from the first backward of a read to
// that of the token. Derivatives are of first order only: a backward pass that builds a graph is a RunError.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

#include "ops/depth_read.h"
#include "ops/depth_read_driver.h"

namespace depthroute {

// The gradient of one source, as far as the backward pass in progress has come.
class SourceGradient : public torch::CustomClassHolder {
 public:
  // The accumulator, of the shape of `value`; `fresh` tells that it is new, its content undefined.
  at::Tensor accumulator(const at::Tensor& value, bool* fresh);
  // Gives the accumulator away; undefined where no read has added anything.
  at::Tensor take();

 private:
  at::Tensor sum_;
  // Which backward pass the sum belongs to: one that failed half-way leaves a sum that no later pass must see.
  int pass_ = -1;
};

// A source and what its reads share. They must be with the same `heads` and `eps`. Copies share the accumulator.
class DepthSource {
 public:
  explicit DepthSource(const at::Tensor& source) : source_(source) {}

  const at::Tensor& source() const { return source_; }

 private:
  friend class FusedRead;
  friend class FusedMix;  // ops/dense_mix.h
  // Fills what is still missing; the token only where gradients are recorded and the source wants one.
  void prepare();
  void prepare_norm(int64_t heads);

  at::Tensor source_;
  at::Tensor value_;            // [..., d], detached and dense
  at::Tensor reciprocal_norm_;  // [N, H]
  bool norm_known_ = false;
  at::Tensor token_;
  c10::intrusive_ptr<SourceGradient> gradient_;
};

std::vector<at::Tensor> source_tensors(const std::vector<DepthSource*>& sources);

// See depth_read_reference for arguments and errors; besides, InputError where the sources are not on the CPU.
DepthRead depth_read_fused(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                           const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads,
                           double eps);

// The same for sources that are read again. With a first phase, that of all sources or of all but the last, the mixtures are
// finished from there; it has the read's own queries and key norm, and there is no output norm.
DepthRead depth_read_fused(const std::vector<DepthSource*>& sources, const std::vector<at::Tensor>& queries,
                           const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads,
                           double eps, const DepthReadPhase* phase = nullptr);

// The first phase of several reads over sources that they share; arguments as for a read.
std::vector<DepthReadPhase> depth_read_first_phase(const std::vector<DepthSource*>& sources,
                                                   const std::vector<PlannedRead>& reads, int64_t heads,
                                                   double eps);

}  // namespace depthroute
