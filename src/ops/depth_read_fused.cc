#include "ops/depth_read_fused.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "io/error.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

constexpr const char* kState = "state";

struct ReadState : torch::CustomClassHolder {
  size_t sources = 0, routes = 0;
  int64_t heads = 1;
  bool normalised = false;                                    // there is an output norm
  std::vector<c10::intrusive_ptr<SourceGradient>> gradients;  // K, null: no gradient wanted
};

variable_list pack(const DepthReadTensors& tensors) {
  variable_list list = tensors.sources;
  list.insert(list.end(), tensors.reciprocal_norms.begin(), tensors.reciprocal_norms.end());
  list.insert(list.end(), tensors.queries.begin(), tensors.queries.end());
  list.insert(list.end(), {tensors.key_weight, tensors.scores, tensors.probabilities});
  if (tensors.output_weight.defined()) list.insert(list.end(), {tensors.output_weight, tensors.output_norm});
  return list;
}

DepthReadTensors unpack(variable_list list, const ReadState& state) {
  auto next = list.begin();
  auto take = [&next](size_t count) {
    std::vector<at::Tensor> part(next, next + static_cast<std::ptrdiff_t>(count));
    next += static_cast<std::ptrdiff_t>(count);
    return part;
  };
  DepthReadTensors tensors;
  tensors.sources = take(state.sources);
  tensors.reciprocal_norms = take(state.sources);
  tensors.queries = take(state.routes);
  tensors.key_weight = *next++;
  tensors.scores = *next++;
  tensors.probabilities = *next++;
  if (state.normalised) {
    tensors.output_weight = *next++;
    tensors.output_norm = *next++;
  }
  return tensors;
}

// Gradient of the source from the accumulator its reads have filled.
class SourceToken : public Function<SourceToken> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& source,
                            const c10::intrusive_ptr<SourceGradient>& gradient) {
    context->set_materialize_grads(false);
    context->saved_data[kState] = c10::IValue::make_capsule(gradient);
    return at::empty({0}, source.options());
  }

  static variable_list backward(AutogradContext* context, const variable_list&) {
    auto gradient = c10::static_intrusive_pointer_cast<SourceGradient>(context->saved_data[kState].toCapsule());
    return {gradient->take(), Variable()};
  }
};

void check_fused(const std::vector<DepthSource*>& sources, const std::vector<at::Tensor>& queries,
                 const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads) {
  std::vector<at::Tensor> tensors = source_tensors(sources);
  check_depth_read(tensors, queries, key_norm_weight, output_norm_weight, heads);
  if (!tensors[0].device().is_cpu()) {
    fail_input("depth read: the fused read runs on the CPU, source 0 is on {}", tensors[0].device().str());
  }
}

}  // namespace

at::Tensor SourceGradient::accumulator(const at::Tensor& value, bool* fresh) {
  int pass = torch::autograd::get_current_graph_task_id();
  *fresh = !sum_.defined() || pass != pass_;
  // In the type of the arithmetic; autograd turns the finished sum into that of the source.
  if (*fresh) sum_ = at::empty_like(value, arithmetic_options(value));
  pass_ = pass;
  return sum_;
}

at::Tensor SourceGradient::take() {
  at::Tensor sum = std::move(sum_);
  sum_ = at::Tensor();
  return pass_ == torch::autograd::get_current_graph_task_id() ? sum : at::Tensor();
}

void DepthSource::prepare() {
  if (!value_.defined()) value_ = source_.detach().contiguous();
  if (!token_.defined() && at::GradMode::is_enabled() && source_.requires_grad()) {
    gradient_ = c10::make_intrusive<SourceGradient>();
    token_ = SourceToken::apply(source_, gradient_);
  }
}

void DepthSource::prepare_norm(int64_t heads) {
  if (reciprocal_norm_.defined()) return;
  reciprocal_norm_ = at::empty({source_.numel() / source_.size(-1), heads}, arithmetic_options(value_));
}

// One read of prepared sources: queries, key-norm weight, output-norm weight if any, and tokens are autograd's
// inputs, in this order; mixtures and probabilities its outputs.
class FusedRead : public Function<FusedRead> {
 public:
  struct Arguments {
    const std::vector<DepthSource*>& sources;
    const std::vector<at::Tensor>& queries;
    const at::Tensor &key_weight, &output_weight;
    int64_t heads;
    double eps;
    const DepthReadPhase* phase;
  };

  static std::vector<DepthReadPhase> first_phase(const std::vector<DepthSource*>& sources,
                                                 const std::vector<PlannedRead>& reads, int64_t heads, double eps) {
    at::NoGradGuard no_grad;
    for (DepthSource* source : sources) {
      source->prepare();
      source->prepare_norm(heads);
    }
    DepthReadTensors completed;
    std::vector<bool> norm_known = take_sources(sources, &completed);
    return compute_first_phase(completed.sources, completed.reciprocal_norms, norm_known, reads, heads, eps);
  }

  static DepthRead read(const Arguments& arguments) {
    variable_list inputs = arguments.queries;
    inputs.push_back(arguments.key_weight);
    if (arguments.output_weight.defined()) inputs.push_back(arguments.output_weight);
    for (DepthSource* source : arguments.sources) {
      source->prepare();
      source->prepare_norm(arguments.heads);
      if (source->token_.defined()) inputs.push_back(source->token_);
    }
    bool recorded = at::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(inputs);
    variable_list outputs = apply(at::TensorList(inputs), arguments, recorded);
    DepthRead result;
    result.probabilities = outputs.back();
    outputs.pop_back();
    result.mixtures = std::move(outputs);
    return result;
  }

  static variable_list forward(AutogradContext* context, at::TensorList, const Arguments& arguments,
                               bool recorded) {
    DepthReadTensors tensors;
    std::vector<bool> norm_known = take_sources(arguments.sources, &tensors);
    auto state = c10::make_intrusive<ReadState>();
    for (const DepthSource* source : arguments.sources) state->gradients.push_back(source->gradient_);
    for (const at::Tensor& query : arguments.queries) tensors.queries.push_back(arithmetic_parameter(query));
    tensors.key_weight = arithmetic_parameter(arguments.key_weight);
    if (arguments.output_weight.defined()) tensors.output_weight = arithmetic_parameter(arguments.output_weight);
    state->sources = tensors.sources.size();
    state->routes = tensors.queries.size();
    state->heads = arguments.heads;
    state->normalised = tensors.output_weight.defined();

    variable_list outputs = arguments.phase == nullptr
                                ? compute_depth_read(&tensors, norm_known, arguments.heads, arguments.eps, recorded)
                                : finish_depth_read(&tensors, *arguments.phase, norm_known.back(), arguments.heads,
                                                    arguments.eps, recorded);
    outputs.push_back(tensors.probabilities);
    context->mark_non_differentiable({tensors.probabilities});
    if (recorded) {
      context->set_materialize_grads(false);
      context->save_for_backward(pack(tensors));
      context->saved_data[kState] = c10::IValue::make_capsule(state);
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      fail_run(
          "depth read: the fused read has no second derivative; use the reference read to differentiate its "
          "gradient");
    }
    auto state = c10::static_intrusive_pointer_cast<ReadState>(context->saved_data[kState].toCapsule());
    size_t inputs = state->routes + (state->normalised ? 2 : 1);
    // What autograd does not want is not accumulated, since nobody would take it.
    std::vector<bool> wanted;
    for (const auto& gradient : state->gradients) {
      wanted.push_back(gradient.defined() && context->needs_input_grad(inputs));
      if (gradient.defined()) ++inputs;
    }
    variable_list results(inputs + 2);  // the two arguments that are no tensors count

    std::vector<at::Tensor> upstream;
    bool any = false;
    for (size_t r = 0; r < state->routes; ++r) {
      upstream.push_back(gradients[r].defined() ? gradients[r].contiguous() : at::Tensor());
      any = any || gradients[r].defined();
    }
    if (!any) return results;
    DepthReadTensors tensors = unpack(context->get_saved_variables(), *state);
    std::vector<SourceGradientSum> sums(state->sources);
    for (size_t i = 0; i < state->sources; ++i) {
      if (wanted[i]) sums[i].sum = state->gradients[i]->accumulator(tensors.sources[i], &sums[i].assign);
    }
    variable_list parameters = differentiate_depth_read(tensors, state->heads, upstream, sums);
    std::move(parameters.begin(), parameters.end(), results.begin());
    return results;
  }

 private:
  // Prepared sources and their norms; tells which norms are known already, since whoever takes them fills the others.
  static std::vector<bool> take_sources(const std::vector<DepthSource*>& sources, DepthReadTensors* tensors) {
    std::vector<bool> norm_known;
    for (DepthSource* source : sources) {
      tensors->sources.push_back(source->value_);
      tensors->reciprocal_norms.push_back(source->reciprocal_norm_);
      norm_known.push_back(source->norm_known_);
      source->norm_known_ = true;
    }
    return norm_known;
  }
};

std::vector<at::Tensor> source_tensors(const std::vector<DepthSource*>& sources) {
  std::vector<at::Tensor> tensors;
  for (const DepthSource* source : sources) tensors.push_back(source->source());
  return tensors;
}

DepthRead depth_read_fused(const std::vector<DepthSource*>& sources, const std::vector<at::Tensor>& queries,
                           const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads,
                           double eps, const DepthReadPhase* phase) {
  check_fused(sources, queries, key_norm_weight, output_norm_weight, heads);
  return FusedRead::read({sources, queries, key_norm_weight, output_norm_weight, heads, eps, phase});
}

std::vector<DepthReadPhase> depth_read_first_phase(const std::vector<DepthSource*>& sources,
                                                   const std::vector<PlannedRead>& reads, int64_t heads,
                                                   double eps) {
  for (const PlannedRead& read : reads) check_fused(sources, read.queries, read.key_norm_weight, {}, heads);
  return FusedRead::first_phase(sources, reads, heads, eps);
}

DepthRead depth_read_fused(const std::vector<at::Tensor>& sources, const std::vector<at::Tensor>& queries,
                           const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads,
                           double eps) {
  std::vector<DepthSource> shared(sources.begin(), sources.end());
  std::vector<DepthSource*> pointers;
  for (DepthSource& source : shared) pointers.push_back(&source);
  return depth_read_fused(pointers, queries, key_norm_weight, output_norm_weight, heads, eps);
}

}  // namespace depthroute
