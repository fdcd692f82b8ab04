#include "ops/dense_mix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "io/error.h"
#include "io/format.h"
#include "ops/dense_mix_kernel.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Less work than this many elements of sources is not worth a thread.
constexpr int64_t kElementsPerThread = 1 << 16;
// The gradient of weights that all tokens share is summed over fixed blocks of tokens, so that its bits do not depend
// on the number of threads: at least so many tokens a block, at most so many blocks.
constexpr int64_t kTokensPerBlock = 64, kBlocks = 256;

constexpr const char* kState = "state";

void check(const std::vector<at::Tensor>& sources, const at::Tensor& weights) {
  auto count = static_cast<int64_t>(sources.size());
  if (count < 1 || count > kMaxDepthSources)
    fail_input("dense mix: {} sources, expected 1 to {}", count, kMaxDepthSources);
  const at::Tensor& first = sources[0];
  if (first.scalar_type() != at::kFloat && first.scalar_type() != at::kDouble) {
    fail_input("dense mix: source 0 is {}, expected Float or Double", c10::toString(first.scalar_type()));
  }
  if (first.dim() < 1 || first.size(-1) < 1) fail_input("dense mix: source 0 has no width");
  auto same = [&](const char* name, size_t index, const at::Tensor& tensor) {
    if (tensor.scalar_type() != first.scalar_type() || tensor.device() != first.device()) {
      fail_input("dense mix: {} {} is {} on {}, source 0 is {} on {}", name, index,
                 c10::toString(tensor.scalar_type()), tensor.device().str(), c10::toString(first.scalar_type()),
                 first.device().str());
    }
  };
  for (size_t i = 1; i < sources.size(); ++i) {
    same("source", i, sources[i]);
    if (sources[i].sizes() != first.sizes()) {
      fail_input("dense mix: source {} has shape [{}], source 0 has [{}]", i, join_text(sources[i].sizes(), ", "),
                 join_text(first.sizes(), ", "));
    }
  }
  same("weights", 0, weights);
  int64_t tokens = first.numel() / first.size(-1), dimensions = weights.dim();
  bool good = (dimensions == 2 || (dimensions == 3 && weights.size(0) == tokens)) && weights.size(-1) == count &&
              weights.size(-2) >= 1 && weights.size(-2) <= kMaxDepthRoutes;
  if (!good) {
    fail_input("dense mix: weights have shape [{}], expected [C, {}] or [{}, C, {}] with C from 1 to {}",
               join_text(weights.sizes(), ", "), count, tokens, count, kMaxDepthRoutes);
  }
}

template <typename T>
void set_sources(const std::vector<at::Tensor>& values, const at::Tensor& weights, DenseMixSources<T>* mix) {
  mix->width = values[0].size(-1);
  mix->tokens = values[0].numel() / mix->width;
  mix->sources = weights.size(-1);
  mix->streams = weights.size(-2);
  for (size_t i = 0; i < values.size(); ++i) mix->source[i] = values[i].data_ptr<T>();
  mix->weight = weights.data_ptr<T>();
  mix->weight_per_token = weights.dim() == 3;
}

template <typename T>
void run_forward(const std::vector<at::Tensor>& values, const at::Tensor& weights, const variable_list& mixtures) {
  DenseMixForward<T> mix;
  set_sources(values, weights, &mix);
  for (size_t c = 0; c < mixtures.size(); ++c) mix.mixture[c] = mixtures[c].data_ptr<T>();
  at::parallel_for(0, mix.tokens, at::divup(kElementsPerThread, mix.sources * mix.width),
                   [&](int64_t begin, int64_t end) { dense_mix_forward(mix, begin, end); });
}

// Adds to the accumulators and returns the gradient of the weights.
template <typename T>
at::Tensor run_backward(DenseMixBackward<T>& mix, const at::Tensor& weights) {
  int64_t grain = at::divup(kElementsPerThread, mix.sources * mix.width);
  if (mix.weight_per_token) {
    at::Tensor gradient = at::empty_like(weights);
    mix.weight_gradient = gradient.data_ptr<T>();
    at::parallel_for(0, mix.tokens, grain,
                     [&](int64_t begin, int64_t end) { dense_mix_backward(mix, begin, end, nullptr); });
    return gradient;
  }
  int64_t block = std::max(kTokensPerBlock, at::divup(mix.tokens, kBlocks)), count = mix.streams * mix.sources;
  at::Tensor partial = at::zeros({at::divup(mix.tokens, block), count}, at::kDouble);
  double* sums = partial.data_ptr<double>();
  at::parallel_for(0, partial.size(0), at::divup(grain, block), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      dense_mix_backward(mix, b * block, std::min(mix.tokens, (b + 1) * block), sums + b * count);
  });
  at::Tensor total = at::zeros({count}, at::kDouble);
  for (int64_t b = 0; b < partial.size(0); ++b) total.add_(partial.select(0, b));
  return total.view(weights.sizes()).to(weights.scalar_type());
}

struct MixState : torch::CustomClassHolder {
  std::vector<c10::intrusive_ptr<SourceGradient>> gradients;  // K, null: no gradient wanted
};

template <typename T>
at::Tensor backward_of_mix(const std::vector<at::Tensor>& values, const at::Tensor& weights, const MixState& state,
                           const variable_list& upstream, const std::vector<bool>& wanted) {
  DenseMixBackward<T> mix;
  set_sources(values, weights, &mix);
  std::vector<at::Tensor> accumulators(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!wanted[i]) continue;
    accumulators[i] = state.gradients[i]->accumulator(values[i], &mix.assign[i]);
    mix.source_gradient[i] = accumulators[i].data_ptr<T>();
  }
  for (size_t c = 0; c < upstream.size(); ++c) mix.mixture_gradient[c] = upstream[c].data_ptr<T>();
  return run_backward(mix, weights);
}

}  // namespace

std::vector<at::Tensor> dense_mix_reference(const std::vector<at::Tensor>& sources, const at::Tensor& weights) {
  check(sources, weights);
  std::vector<at::Tensor> mixtures;
  for (int64_t c = 0; c < weights.size(-2); ++c) {
    at::Tensor mixture;
    for (size_t i = 0; i < sources.size(); ++i) {
      at::Tensor weight = weights.select(-1, static_cast<int64_t>(i)).select(-1, c);  // a scalar or [N]
      if (weights.dim() == 3) {
        at::DimVector shape(sources[i].sizes().begin(), sources[i].sizes().end());
        shape.back() = 1;
        weight = weight.view(shape);
      }
      at::Tensor part = weight * sources[i];
      mixture = mixture.defined() ? mixture + part : part;
    }
    mixtures.push_back(mixture);
  }
  return mixtures;
}

// The weights and the tokens of the sources are autograd's inputs, in this order; the mixtures its outputs.
class FusedMix : public Function<FusedMix> {
 public:
  static variable_list mix(const std::vector<DepthSource*>& sources, const at::Tensor& weights) {
    variable_list inputs = {weights};
    for (DepthSource* source : sources) {
      source->prepare();
      if (source->token_.defined()) inputs.push_back(source->token_);
    }
    bool recorded = at::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(inputs);
    return apply(at::TensorList(inputs), sources, recorded);
  }

  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::vector<DepthSource*>& sources, bool recorded) {
    std::vector<at::Tensor> values;
    auto state = c10::make_intrusive<MixState>();
    for (DepthSource* source : sources) {
      values.push_back(source->value_);
      state->gradients.push_back(source->gradient_);
    }
    at::Tensor weights = inputs[0].contiguous();
    variable_list mixtures;
    for (int64_t c = 0; c < weights.size(-2); ++c) mixtures.push_back(at::empty_like(values[0]));
    if (weights.scalar_type() == at::kFloat) {
      run_forward<float>(values, weights, mixtures);
    } else {
      run_forward<double>(values, weights, mixtures);
    }
    if (recorded) {
      context->set_materialize_grads(false);
      values.push_back(weights);
      context->save_for_backward(values);
      context->saved_data[kState] = c10::IValue::make_capsule(state);
    }
    return mixtures;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) fail_run("dense mix: the fused mix has no second derivative");
    auto state = c10::static_intrusive_pointer_cast<MixState>(context->saved_data[kState].toCapsule());
    size_t inputs = 1;
    std::vector<bool> wanted;
    for (const auto& gradient : state->gradients) {
      wanted.push_back(gradient.defined() && context->needs_input_grad(inputs));
      if (gradient.defined()) ++inputs;
    }
    variable_list results(inputs + 2);  // the two arguments that are no tensors count
    if (std::none_of(gradients.begin(), gradients.end(), [](const at::Tensor& g) { return g.defined(); }))
      return results;
    variable_list values = context->get_saved_variables(), upstream;
    at::Tensor weights = values.back();
    values.pop_back();
    for (const at::Tensor& gradient : gradients)
      upstream.push_back(gradient.defined() ? gradient.contiguous() : at::zeros_like(values[0]));
    results[0] = weights.scalar_type() == at::kFloat
                     ? backward_of_mix<float>(values, weights, *state, upstream, wanted)
                     : backward_of_mix<double>(values, weights, *state, upstream, wanted);
    return results;
  }
};

std::vector<at::Tensor> dense_mix_fused(const std::vector<DepthSource*>& sources, const at::Tensor& weights) {
  std::vector<at::Tensor> tensors = source_tensors(sources);
  check(tensors, weights);
  if (!tensors[0].device().is_cpu()) {
    fail_input("dense mix: the fused mix runs on the CPU, source 0 is on {}", tensors[0].device().str());
  }
  return FusedMix::mix(sources, weights);
}

}  // namespace depthroute
