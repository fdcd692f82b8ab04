#include "ops/depth_read_driver.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/depth_merge_kernel.h"
#include "ops/depth_read_kernel.h"
#include "ops/tensor_data.h"

namespace depthroute {
namespace {

// Less work than this many elements of sources is not worth a thread.
constexpr int64_t kElementsPerThread = 1 << 16;
// Gradients of queries and weights are summed over fixed blocks of tokens, so that their bits do not depend on the
// number of threads: at least so many tokens a block, at most so many blocks.
constexpr int64_t kTokensPerBlock = 64, kBlocks = 256;

// u_r = q_r * w: [R, d].
at::Tensor scale_queries(const DepthReadTensors& tensors) {
  return at::stack(tensors.queries).mul_(tensors.key_weight);
}

template <typename T, typename S>
void set_sources(const DepthReadTensors& tensors, const at::Tensor& scaled_query, int64_t heads,
                 DepthReadSources<T, S>* read) {
  read->tokens = tensors.tokens();
  read->width = tensors.width();
  read->heads = heads;
  read->sources = static_cast<int64_t>(tensors.sources.size());
  read->routes = static_cast<int64_t>(tensors.queries.size());
  for (size_t i = 0; i < tensors.sources.size(); ++i) read->source[i] = data<S>(tensors.sources[i]);
  read->scaled_query = data<T>(scaled_query);
  read->output_norm_weight = data<T>(tensors.output_weight);
}

template <typename T, typename S = T>
void run_forward(const DepthReadTensors& tensors, const std::vector<bool>& norm_known,
                 const std::vector<at::Tensor>& mixtures, int64_t heads, double eps) {
  DepthReadForward<T, S> read;
  at::Tensor scaled_query = scale_queries(tensors);
  set_sources(tensors, scaled_query, heads, &read);
  read.eps = eps;
  for (size_t i = 0; i < tensors.sources.size(); ++i) {
    read.reciprocal_norm[i] = data<T>(tensors.reciprocal_norms[i]);
    read.norm_known[i] = norm_known[i];
  }
  for (size_t r = 0; r < mixtures.size(); ++r) read.mixture[r] = data<S>(mixtures[r]);
  read.probabilities = data<T>(tensors.probabilities);
  read.scores = data<T>(tensors.scores);
  read.output_reciprocal_norm = data<T>(tensors.output_norm);
  int64_t grain = at::divup(kElementsPerThread, read.sources * read.width);
  at::parallel_for(0, read.tokens, grain,
                   [&](int64_t begin, int64_t end) { depth_read_forward(read, begin, end); });
}

// The reads from `begin` that are done in one pass: as many as a pass has routes for.
size_t end_of_pass(const std::vector<int64_t>& routes, size_t begin) {
  size_t end = begin;
  for (int64_t sum = 0; end < routes.size() && (sum += routes[end]) <= kMaxDepthRoutes; ++end) {
  }
  return end;
}

template <typename T>
void run_merge(const DepthReadTensors& read, const DepthReadPhase& phase, bool norm_known, int64_t heads,
               double eps) {
  DepthMerge<T> merge;
  at::Tensor scaled_query = scale_queries(read);
  merge.tokens = read.tokens();
  merge.width = read.width();
  merge.heads = heads;
  merge.completed = static_cast<int64_t>(read.sources.size()) - 1;
  merge.routes = static_cast<int64_t>(read.queries.size());
  merge.eps = eps;
  merge.partial = data<T>(read.sources.back());
  merge.scaled_query = data<T>(scaled_query);
  merge.reciprocal_norm = data<T>(read.reciprocal_norms.back());
  merge.norm_known = norm_known;
  merge.completed_scores = data<T>(phase.scores);
  merge.completed_probabilities = data<T>(phase.probabilities);
  for (size_t r = 0; r < phase.mixtures.size(); ++r) merge.mixture[r] = data<T>(phase.mixtures[r]);
  merge.scores = data<T>(read.scores);
  merge.probabilities = data<T>(read.probabilities);
  int64_t grain = at::divup(kElementsPerThread, (merge.routes + 1) * merge.width);
  at::parallel_for(0, merge.tokens, grain, [&](int64_t begin, int64_t end) { depth_merge(merge, begin, end); });
}

// R + 1 rows [d] in double: du_r and the gradient of the output-norm weight.
template <typename T, typename S = T>
at::Tensor run_backward(const DepthReadTensors& tensors, int64_t heads, const std::vector<at::Tensor>& upstream,
                        const std::vector<SourceGradientSum>& source_gradients) {
  DepthReadBackward<T, S> read;
  at::Tensor scaled_query = scale_queries(tensors);
  set_sources(tensors, scaled_query, heads, &read);
  for (size_t i = 0; i < tensors.sources.size(); ++i) {
    read.reciprocal_norm[i] = data<T>(tensors.reciprocal_norms[i]);
    read.source_gradient[i] = data<T>(source_gradients[i].sum);
    read.assign[i] = source_gradients[i].assign;
  }
  for (size_t r = 0; r < upstream.size(); ++r) read.mixture_gradient[r] = data<S>(upstream[r]);
  read.probabilities = data<T>(tensors.probabilities);
  read.scores = data<T>(tensors.scores);
  read.output_reciprocal_norm = data<T>(tensors.output_norm);

  int64_t tokens = read.tokens, rows = read.routes + 1;
  int64_t block = std::max(kTokensPerBlock, at::divup(tokens, kBlocks)), blocks = at::divup(tokens, block);
  at::Tensor partial = at::zeros({blocks, rows, read.width}, at::kDouble);
  double* sums = partial.data_ptr<double>();
  int64_t grain = at::divup(kElementsPerThread, block * read.sources * read.width);
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> workspace(static_cast<size_t>(depth_read_workspace(read.routes, read.width)));
    for (int64_t b = begin; b < end; ++b) {
      depth_read_backward(read, b * block, std::min(tokens, (b + 1) * block), sums + b * rows * read.width,
                          workspace.data());
    }
  });
  at::Tensor total = at::zeros({rows, read.width}, at::kDouble);
  for (int64_t b = 0; b < blocks; ++b) total.add_(partial.select(0, b));
  return total;
}

}  // namespace

at::TensorOptions arithmetic_options(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.options().dtype(at::kFloat) : tensor.options();
}

at::Tensor arithmetic_parameter(const at::Tensor& parameter) {
  return parameter.to(arithmetic_options(parameter)).contiguous();
}

std::vector<at::Tensor> compute_depth_read(DepthReadTensors* read, const std::vector<bool>& norm_known,
                                           int64_t heads, double eps, bool keep_scores) {
  at::TensorOptions options = read->key_weight.options();
  auto routes = static_cast<int64_t>(read->queries.size()), sources = static_cast<int64_t>(read->sources.size());
  std::vector<at::Tensor> mixtures;
  for (int64_t r = 0; r < routes; ++r)
    mixtures.push_back(at::empty(read->sources[0].sizes(), read->sources[0].options()));
  read->probabilities = at::empty({routes, read->tokens(), sources, heads}, options);
  if (keep_scores) read->scores = at::empty_like(read->probabilities);
  if (read->output_weight.defined()) read->output_norm = at::empty({routes, read->tokens()}, options);
  if (read->sources[0].scalar_type() == at::kBFloat16) {
    run_forward<float, Bfloat16>(*read, norm_known, mixtures, heads, eps);
  } else if (options.dtype() == at::kFloat) {
    run_forward<float>(*read, norm_known, mixtures, heads, eps);
  } else {
    run_forward<double>(*read, norm_known, mixtures, heads, eps);
  }
  return mixtures;
}

int64_t one_phase_rows(int64_t completed, const std::vector<int64_t>& routes) {
  int64_t rows = 0;
  for (size_t j = 0; j < routes.size(); ++j) rows += completed + (j > 0 ? 1 : 0) + routes[j];
  return rows;
}

int64_t two_phase_rows(int64_t completed, const std::vector<int64_t>& routes) {
  int64_t rows = 0;
  for (size_t begin = 0; begin < routes.size(); begin = end_of_pass(routes, begin)) rows += completed;
  for (size_t j = 0; j < routes.size(); ++j) rows += routes[j] + (j > 0 ? 2 * routes[j] + 1 : 0);
  return rows;
}

std::vector<DepthReadPhase> compute_first_phase(const std::vector<at::Tensor>& completed,
                                                const std::vector<at::Tensor>& reciprocal_norms,
                                                const std::vector<bool>& norm_known,
                                                const std::vector<PlannedRead>& reads, int64_t heads, double eps) {
  std::vector<int64_t> routes;
  for (const PlannedRead& read : reads) routes.push_back(static_cast<int64_t>(read.queries.size()));
  std::vector<DepthReadPhase> phases;
  std::vector<bool> known = norm_known;
  for (size_t begin = 0; begin < reads.size();) {
    size_t end = end_of_pass(routes, begin);
    DepthReadTensors pass;
    pass.sources = completed;
    pass.reciprocal_norms = reciprocal_norms;
    // Each read has a key norm of its own, which only scales its queries.
    pass.key_weight = at::ones_like(reads[begin].key_norm_weight, at::MemoryFormat::Contiguous);
    for (size_t j = begin; j < end; ++j) {
      for (const at::Tensor& query : reads[j].queries) pass.queries.push_back(query * reads[j].key_norm_weight);
    }
    std::vector<at::Tensor> mixtures = compute_depth_read(&pass, known, heads, eps, /*keep_scores=*/true);
    known.assign(known.size(), true);
    int64_t route = 0;
    for (; begin < end; ++begin) {
      DepthReadPhase phase;
      phase.mixtures.assign(mixtures.begin() + route, mixtures.begin() + route + routes[begin]);
      phase.scores = pass.scores.narrow(0, route, routes[begin]);
      phase.probabilities = pass.probabilities.narrow(0, route, routes[begin]);
      phases.push_back(std::move(phase));
      route += phases.back().scores.size(0);
    }
  }
  return phases;
}

std::vector<at::Tensor> finish_depth_read(DepthReadTensors* read, DepthReadPhase phase, bool partial_norm_known,
                                          int64_t heads, double eps, bool keep_scores) {
  auto sources = static_cast<int64_t>(read->sources.size());
  if (phase.scores.size(2) == sources) {
    read->probabilities = phase.probabilities;
    if (keep_scores) read->scores = phase.scores;
    return phase.mixtures;
  }
  at::DimVector shape(phase.scores.sizes());
  shape[2] = sources;
  read->probabilities = at::empty(shape, phase.scores.options());
  if (keep_scores) read->scores = at::empty_like(read->probabilities);
  if (phase.scores.scalar_type() == at::kFloat) {
    run_merge<float>(*read, phase, partial_norm_known, heads, eps);
  } else {
    run_merge<double>(*read, phase, partial_norm_known, heads, eps);
  }
  return phase.mixtures;
}

std::vector<at::Tensor> differentiate_depth_read(const DepthReadTensors& read, int64_t heads,
                                                 const std::vector<at::Tensor>& mixture_gradients,
                                                 const std::vector<SourceGradientSum>& source_gradients) {
  auto type = read.sources[0].scalar_type();
  at::Tensor sums = type == at::kBFloat16
                        ? run_backward<float, Bfloat16>(read, heads, mixture_gradients, source_gradients)
                    : type == at::kFloat ? run_backward<float>(read, heads, mixture_gradients, source_gradients)
                                         : run_backward<double>(read, heads, mixture_gradients, source_gradients);
  // dq_r = du_r * w, dw = sum_r du_r * q_r, and the gradient of g as it is.
  std::vector<at::Tensor> gradients;
  at::Tensor key_gradient = at::zeros({read.width()}, at::kDouble);
  for (const at::Tensor& query : read.queries) {
    at::Tensor sum = sums.select(0, static_cast<int64_t>(gradients.size()));
    key_gradient.addcmul_(sum, query.to(at::kDouble));
    gradients.push_back((sum * read.key_weight).to(type));
  }
  gradients.push_back(key_gradient.to(type));
  if (read.output_weight.defined()) gradients.push_back(sums.select(0, sums.size(0) - 1).to(type));
  return gradients;
}

}  // namespace depthroute
