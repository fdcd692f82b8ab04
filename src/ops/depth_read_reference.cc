#include <ATen/ATen.h>

#include "io/error.h"
#include "io/format.h"
#include "ops/depth_read.h"

namespace depthroute {
namespace {

// x / sqrt(mean(x^2) + eps) over the last dimension. A norm's reciprocal that underflows or overflows in float32
// does so here too: the contract is the formula.
at::Tensor reciprocal_norm(const at::Tensor& x, double eps) {
  return (x.square().mean(-1, true) + eps).rsqrt();
}

void check_vector(const at::Tensor& vector, const char* name, const at::Tensor& source) {
  int64_t width = source.size(-1);
  if (vector.dim() != 1 || vector.size(0) != width) {
    fail_input("depth read: {} has shape {}, expected [{}], the width of the sources", name,
               join_text(vector.sizes(), "x"), width);
  }
  if (vector.scalar_type() != source.scalar_type() || vector.device() != source.device()) {
    fail_input("depth read: {} is {} on {}, the sources are {} on {}", name, c10::toString(vector.scalar_type()),
               vector.device().str(), c10::toString(source.scalar_type()), source.device().str());
  }
}

}  // namespace

void check_depth_read(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                      const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads) {
  auto count = static_cast<int64_t>(sources.size());
  auto routes = static_cast<int64_t>(queries.size());
  if (count < 1 || count > kMaxDepthSources) {
    fail_input("depth read: {} sources, expected 1 to {}", count, kMaxDepthSources);
  }
  if (routes < 1 || routes > kMaxDepthRoutes)
    fail_input("depth read: {} queries, expected 1 to {}", routes, kMaxDepthRoutes);
  const at::Tensor& first = sources[0];
  if (first.dim() < 1 || first.size(-1) < 1) fail_input("depth read: source 0 has no width");
  if (first.scalar_type() != at::kFloat && first.scalar_type() != at::kDouble &&
      first.scalar_type() != at::kBFloat16) {
    fail_input("depth read: source 0 is {}, expected Float, Double or BFloat16",
               c10::toString(first.scalar_type()));
  }
  for (int64_t i = 1; i < count; ++i) {
    const at::Tensor& source = sources[static_cast<size_t>(i)];
    if (source.sizes() != first.sizes()) {
      fail_input("depth read: source {} has shape {}, source 0 has {}", i, join_text(source.sizes(), "x"),
                 join_text(first.sizes(), "x"));
    }
    if (source.scalar_type() != first.scalar_type() || source.device() != first.device()) {
      fail_input("depth read: source {} is {} on {}, source 0 is {} on {}", i, c10::toString(source.scalar_type()),
                 source.device().str(), c10::toString(first.scalar_type()), first.device().str());
    }
  }
  if (heads < 1 || first.size(-1) % heads != 0) {
    fail_input("depth read: {} heads do not divide the width {}", heads, first.size(-1));
  }
  for (const at::Tensor& query : queries) check_vector(query, "a query", first);
  check_vector(key_norm_weight, "the key-norm weight", first);
  if (output_norm_weight.defined()) check_vector(output_norm_weight, "the output-norm weight", first);
}

DepthRead depth_read_reference(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                               const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight,
                               int64_t heads, double eps) {
  check_depth_read(sources, queries, key_norm_weight, output_norm_weight, heads);
  if (sources[0].scalar_type() == at::kBFloat16) {
    auto wide = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kFloat) : tensor; };
    auto all = [&](const std::vector<at::Tensor>& tensors) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : tensors) list.push_back(wide(tensor));
      return list;
    };
    DepthRead result = depth_read_reference(all(sources), all(queries), wide(key_norm_weight),
                                            wide(output_norm_weight), heads, eps);
    for (at::Tensor& mixture : result.mixtures) mixture = mixture.to(at::kBFloat16);
    return result;
  }
  at::IntArrayRef shape = sources[0].sizes();
  int64_t width = shape.back(), slice = width / heads;
  int64_t tokens = sources[0].numel() / width;

  // Everything per slice: [N, H, d/H]; a parameter [d] is [H, d/H].
  std::vector<at::Tensor> values, keys;
  at::Tensor weight = key_norm_weight.view({heads, slice});
  for (const at::Tensor& source : sources) {
    at::Tensor value = source.reshape({tokens, heads, slice});
    values.push_back(value);
    keys.push_back(weight * value * reciprocal_norm(value, eps));
  }

  DepthRead result;
  std::vector<at::Tensor> probabilities;
  for (const at::Tensor& query : queries) {
    // Each route on its own, so that a route's bits do not depend on how many others there are.
    std::vector<at::Tensor> scores;
    for (const at::Tensor& key : keys) scores.push_back((query.view({heads, slice}) * key).sum(-1));
    at::Tensor probability = at::stack(scores, 1).softmax(1);  // [N, K, H]
    at::Tensor mixture = probability.select(1, 0).unsqueeze(-1) * values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      mixture = mixture + probability.select(1, static_cast<int64_t>(i)).unsqueeze(-1) * values[i];
    }
    mixture = mixture.reshape(shape);
    if (output_norm_weight.defined()) mixture = output_norm_weight * mixture * reciprocal_norm(mixture, eps);
    result.mixtures.push_back(mixture);
    probabilities.push_back(probability.detach());
  }
  result.probabilities = at::stack(probabilities);
  return result;
}

}  // namespace depthroute
