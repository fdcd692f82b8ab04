#include "ops/depth_read_fused.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "io/error.h"
#include "ops/depth_read_kernel.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Less work than this many elements of sources is not worth a thread.
constexpr int64_t kElementsPerThread = 1 << 16;
// Gradients of queries and weights are summed over fixed blocks of tokens, so that their bits do not depend on the
// number of threads: at least so many tokens a block, at most so many blocks.
constexpr int64_t kTokensPerBlock = 64, kBlocks = 256;

constexpr const char* kState = "state";

// Dense arguments of a read and what its backward needs.
struct ReadTensors {
  std::vector<at::Tensor> values, norms;  // K of [..., d] and [N, H]
  std::vector<at::Tensor> queries;        // R of [d]
  at::Tensor key_weight, output_weight;   // [d]; output_weight may be undefined
  at::Tensor scores, probabilities;       // [R, N, K, H]
  at::Tensor output_norm;                 // [R, N]

  int64_t tokens() const { return norms[0].size(0); }
  int64_t width() const { return key_weight.size(0); }
};

struct ReadState : torch::CustomClassHolder {
  size_t sources = 0, routes = 0;
  int64_t heads = 1;
  bool normalised = false;                                    // there is an output norm
  std::vector<c10::intrusive_ptr<SourceGradient>> gradients;  // K, null: no gradient wanted
};

variable_list pack(const ReadTensors& tensors) {
  variable_list list = tensors.values;
  list.insert(list.end(), tensors.norms.begin(), tensors.norms.end());
  list.insert(list.end(), tensors.queries.begin(), tensors.queries.end());
  list.insert(list.end(), {tensors.key_weight, tensors.scores, tensors.probabilities});
  if (tensors.output_weight.defined()) list.insert(list.end(), {tensors.output_weight, tensors.output_norm});
  return list;
}

ReadTensors unpack(variable_list list, const ReadState& state) {
  auto next = list.begin();
  auto take = [&next](size_t count) {
    std::vector<at::Tensor> part(next, next + static_cast<std::ptrdiff_t>(count));
    next += static_cast<std::ptrdiff_t>(count);
    return part;
  };
  ReadTensors tensors;
  tensors.values = take(state.sources);
  tensors.norms = take(state.sources);
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

template <typename T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<T>() : nullptr;
}

// u_r = q_r * w: [R, d].
at::Tensor scale_queries(const ReadTensors& tensors) {
  return at::stack(tensors.queries).mul_(tensors.key_weight);
}

template <typename T>
void set_sources(const ReadTensors& tensors, const at::Tensor& scaled_query, int64_t heads,
                 DepthReadSources<T>* read) {
  read->tokens = tensors.tokens();
  read->width = tensors.width();
  read->heads = heads;
  read->sources = static_cast<int64_t>(tensors.values.size());
  read->routes = static_cast<int64_t>(tensors.queries.size());
  for (size_t i = 0; i < tensors.values.size(); ++i) read->source[i] = data<T>(tensors.values[i]);
  read->scaled_query = data<T>(scaled_query);
  read->output_norm_weight = data<T>(tensors.output_weight);
}

template <typename T>
void run_forward(const ReadTensors& tensors, const std::vector<bool>& norm_known,
                 const std::vector<at::Tensor>& mixtures, int64_t heads, double eps) {
  DepthReadForward<T> read;
  at::Tensor scaled_query = scale_queries(tensors);
  set_sources(tensors, scaled_query, heads, &read);
  read.eps = eps;
  for (size_t i = 0; i < tensors.norms.size(); ++i) {
    read.reciprocal_norm[i] = data<T>(tensors.norms[i]);
    read.norm_known[i] = norm_known[i];
  }
  for (size_t r = 0; r < mixtures.size(); ++r) read.mixture[r] = data<T>(mixtures[r]);
  read.probabilities = data<T>(tensors.probabilities);
  read.scores = data<T>(tensors.scores);
  read.output_reciprocal_norm = data<T>(tensors.output_norm);
  int64_t grain = at::divup(kElementsPerThread, read.sources * read.width);
  at::parallel_for(0, read.tokens, grain,
                   [&](int64_t begin, int64_t end) { depth_read_forward(read, begin, end); });
}

// Gradients of queries and weights: R + 1 rows [d] in double, du_r and the gradient of the output-norm weight.
template <typename T>
at::Tensor run_backward(const DepthReadBackward<T>& read) {
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

// Whether autograd wants the gradient of each source; what it does not want is not accumulated, since nobody would
// take it.
template <typename T>
at::Tensor backward_of_read(const ReadTensors& tensors, const ReadState& state,
                            const std::vector<at::Tensor>& upstream, const std::vector<bool>& wanted) {
  DepthReadBackward<T> read;
  at::Tensor scaled_query = scale_queries(tensors);
  set_sources(tensors, scaled_query, state.heads, &read);
  std::vector<at::Tensor> accumulators(state.sources);
  for (size_t i = 0; i < state.sources; ++i) {
    read.reciprocal_norm[i] = data<T>(tensors.norms[i]);
    if (!wanted[i]) continue;
    accumulators[i] = state.gradients[i]->accumulator(tensors.values[i], &read.assign[i]);
    read.source_gradient[i] = data<T>(accumulators[i]);
  }
  for (size_t r = 0; r < state.routes; ++r) read.mixture_gradient[r] = data<T>(upstream[r]);
  read.probabilities = data<T>(tensors.probabilities);
  read.scores = data<T>(tensors.scores);
  read.output_reciprocal_norm = data<T>(tensors.output_norm);
  return run_backward(read);
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

}  // namespace

at::Tensor SourceGradient::accumulator(const at::Tensor& value, bool* fresh) {
  int pass = torch::autograd::get_current_graph_task_id();
  *fresh = !sum_.defined() || pass != pass_;
  if (*fresh) sum_ = at::empty_like(value);
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
  reciprocal_norm_ = at::empty({source_.numel() / source_.size(-1), heads}, value_.options());
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
  };

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
    ReadTensors tensors;
    std::vector<bool> norm_known;
    auto state = c10::make_intrusive<ReadState>();
    for (DepthSource* source : arguments.sources) {
      tensors.values.push_back(source->value_);
      tensors.norms.push_back(source->reciprocal_norm_);
      norm_known.push_back(source->norm_known_);
      source->norm_known_ = true;
      state->gradients.push_back(source->gradient_);
    }
    for (const at::Tensor& query : arguments.queries) tensors.queries.push_back(query.contiguous());
    tensors.key_weight = arguments.key_weight.contiguous();
    if (arguments.output_weight.defined()) tensors.output_weight = arguments.output_weight.contiguous();
    state->sources = tensors.values.size();
    state->routes = tensors.queries.size();
    state->heads = arguments.heads;
    state->normalised = tensors.output_weight.defined();

    variable_list outputs = compute(&tensors, norm_known, *state, arguments.eps, recorded);
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
    size_t parameters = state->routes + (state->normalised ? 2 : 1), inputs = parameters;
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
    ReadTensors tensors = unpack(context->get_saved_variables(), *state);
    at::Tensor sums = tensors.key_weight.scalar_type() == at::kFloat
                          ? backward_of_read<float>(tensors, *state, upstream, wanted)
                          : backward_of_read<double>(tensors, *state, upstream, wanted);
    set_parameter_gradients(tensors, sums, &results);
    return results;
  }

 private:
  static variable_list compute(ReadTensors* tensors, const std::vector<bool>& norm_known, const ReadState& state,
                               double eps, bool recorded) {
    at::TensorOptions options = tensors->key_weight.options();
    auto routes = static_cast<int64_t>(state.routes), sources = static_cast<int64_t>(state.sources);
    at::IntArrayRef shape = tensors->values[0].sizes();
    variable_list outputs;
    for (size_t r = 0; r < state.routes; ++r) outputs.push_back(at::empty(shape, options));
    tensors->probabilities = at::empty({routes, tensors->tokens(), sources, state.heads}, options);
    if (recorded) tensors->scores = at::empty_like(tensors->probabilities);
    if (state.normalised) tensors->output_norm = at::empty({routes, tensors->tokens()}, options);
    if (options.dtype() == at::kFloat) {
      run_forward<float>(*tensors, norm_known, outputs, state.heads, eps);
    } else {
      run_forward<double>(*tensors, norm_known, outputs, state.heads, eps);
    }
    outputs.push_back(tensors->probabilities);
    return outputs;
  }

  // dq_r = du_r * w, dw = sum_r du_r * q_r, and the gradient of g as it is.
  static void set_parameter_gradients(const ReadTensors& tensors, const at::Tensor& sums, variable_list* results) {
    auto type = tensors.key_weight.scalar_type();
    at::Tensor key_gradient = at::zeros({tensors.width()}, at::kDouble);
    size_t r = 0;
    for (; r < tensors.queries.size(); ++r) {
      at::Tensor sum = sums.select(0, static_cast<int64_t>(r));
      key_gradient.addcmul_(sum, tensors.queries[r].to(at::kDouble));
      (*results)[r] = (sum * tensors.key_weight).to(type);
    }
    (*results)[r] = key_gradient.to(type);
    if (tensors.output_weight.defined()) (*results)[r + 1] = sums.select(0, static_cast<int64_t>(r)).to(type);
  }
};

DepthRead depth_read_fused(const std::vector<DepthSource*>& sources, const std::vector<at::Tensor>& queries,
                           const at::Tensor& key_norm_weight, const at::Tensor& output_norm_weight, int64_t heads,
                           double eps) {
  std::vector<at::Tensor> tensors;
  for (DepthSource* source : sources) tensors.push_back(source->source());
  check_depth_read(tensors, queries, key_norm_weight, output_norm_weight, heads);
  if (!tensors[0].device().is_cpu()) {
    fail_input("depth read: the fused read runs on the CPU, source 0 is on {}", tensors[0].device().str());
  }
  return FusedRead::read({sources, queries, key_norm_weight, output_norm_weight, heads, eps});
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
