// The depth read as a PyTorch operator and the depth memory as a class, for Python and for programs that load this library:
//
//   torch.ops.load_library("build/libdepthroute_operators.so")
//   torch.ops.depthroute.depth_read(sources, queries, key_norm_weight, output_norm_weight=None, heads=1, eps=1e-6)
//       -> R mixtures; arguments and errors as in ops/depth_read.h
//   torch.classes.depthroute.DepthMemory(heads, eps): append(source), set_partial(source or None), size(),
//       read(queries, key_norm_weight) -> R mixtures, mix(weights) -> C mixtures; see ops/depth_memory.h
//
// depth_read is made of two functional operators without autograd of their own, so that torch.compile and
// torch.export trace through it; each read then returns fresh gradients of its sources. DepthMemory, for eager mode,
// lets all reads of a pass add them into one accumulator a source, which is faster the more reads there are.
// On other devices than the CPU depth_read is the definition in ATen operations; DepthMemory is for the CPU.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "ops/depth_memory.h"
#include "ops/depth_read.h"
#include "ops/depth_read_driver.h"

namespace depthroute {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor or_undefined(const OptionalTensor& tensor) {
  return tensor.value_or(at::Tensor());
}

std::vector<at::Tensor> dense(at::TensorList tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.contiguous());
  return result;
}

// What _depth_read_forward returns behind the R mixtures, and _depth_read_backward takes: probabilities and scores
// [R, N, K, H], the sources' reciprocal norms [K, N, H], and those of the mixtures [R, N] (no element without output norm).
constexpr int64_t kSaved = 4;

DepthReadTensors arguments_of(at::TensorList sources, at::TensorList queries, const at::Tensor& key_norm_weight,
                              const OptionalTensor& output_norm_weight, const at::Tensor& reciprocal_norms) {
  DepthReadTensors read;
  read.sources = dense(sources);
  read.reciprocal_norms = reciprocal_norms.unbind(0);
  for (const at::Tensor& query : queries) read.queries.push_back(arithmetic_parameter(query));
  read.key_weight = arithmetic_parameter(key_norm_weight);
  if (output_norm_weight) read.output_weight = arithmetic_parameter(*output_norm_weight);
  return read;
}

std::vector<at::Tensor> depth_read_forward_cpu(at::TensorList sources, at::TensorList queries,
                                               const at::Tensor& key_norm_weight,
                                               const OptionalTensor& output_norm_weight, int64_t heads,
                                               double eps) {
  check_depth_read(sources.vec(), queries.vec(), key_norm_weight, or_undefined(output_norm_weight), heads);
  int64_t tokens = sources[0].numel() / sources[0].size(-1), count = static_cast<int64_t>(sources.size());
  at::Tensor norms = at::empty({count, tokens, heads}, arithmetic_options(sources[0]));
  DepthReadTensors read = arguments_of(sources, queries, key_norm_weight, output_norm_weight, norms);
  std::vector<at::Tensor> outputs =
      compute_depth_read(&read, std::vector<bool>(sources.size(), false), heads, eps, /*keep_scores=*/true);
  if (!output_norm_weight) read.output_norm = at::empty({0}, norms.options());
  outputs.insert(outputs.end(), {read.probabilities, read.scores, norms, read.output_norm});
  return outputs;
}

std::vector<at::Tensor> depth_read_forward_meta(at::TensorList sources, at::TensorList queries, const at::Tensor&,
                                                const OptionalTensor& output_norm_weight, int64_t heads, double) {
  at::TensorOptions options = arithmetic_options(sources[0]);
  c10::SymInt tokens = sources[0].sym_numel() / sources[0].sym_size(-1), none = 0;
  c10::SymInt routes = static_cast<int64_t>(queries.size()), count = static_cast<int64_t>(sources.size());
  std::vector<at::Tensor> outputs;
  for (size_t r = 0; r < queries.size(); ++r)
    outputs.push_back(at::empty_symint(sources[0].sym_sizes(), sources[0].options()));
  for (int i = 0; i < 2; ++i) outputs.push_back(at::empty_symint({routes, tokens, count, heads}, options));
  outputs.push_back(at::empty_symint({count, tokens, heads}, options));
  outputs.push_back(output_norm_weight ? at::empty_symint({routes, tokens}, options)
                                       : at::empty_symint({none}, options));
  return outputs;
}

// Gradients of sources, queries, key_norm_weight and, if there is one, output_norm_weight.
std::vector<at::Tensor> depth_read_backward_cpu(at::TensorList mixture_gradients, at::TensorList sources,
                                                at::TensorList queries, const at::Tensor& key_norm_weight,
                                                const OptionalTensor& output_norm_weight, at::TensorList saved,
                                                int64_t heads) {
  TORCH_CHECK(static_cast<int64_t>(saved.size()) == kSaved && mixture_gradients.size() == queries.size(),
              "depthroute::_depth_read_backward: not what _depth_read_forward returned");
  DepthReadTensors read =
      arguments_of(sources, queries, key_norm_weight, output_norm_weight, saved[2].contiguous());
  read.probabilities = saved[0].contiguous();
  read.scores = saved[1].contiguous();
  if (output_norm_weight) read.output_norm = saved[3].contiguous();
  std::vector<SourceGradientSum> sums;
  for (const at::Tensor& source : read.sources)
    sums.push_back({at::empty(source.sizes(), arithmetic_options(source)), /*assign=*/true});
  std::vector<at::Tensor> parameters = differentiate_depth_read(read, heads, dense(mixture_gradients), sums),
                          results;
  for (const SourceGradientSum& sum : sums) results.push_back(sum.sum.to(sources[0].scalar_type()));
  results.insert(results.end(), parameters.begin(), parameters.end());
  return results;
}

std::vector<at::Tensor> depth_read_backward_meta(at::TensorList, at::TensorList sources, at::TensorList queries,
                                                 const at::Tensor& key_norm_weight,
                                                 const OptionalTensor& output_norm_weight, at::TensorList,
                                                 int64_t) {
  std::vector<at::Tensor> results;
  auto add = [&](const at::Tensor& like) { results.push_back(at::empty_symint(like.sym_sizes(), like.options())); };
  for (const at::Tensor& source : sources) add(source);
  for (const at::Tensor& query : queries) add(query);
  add(key_norm_weight);
  if (output_norm_weight) add(*output_norm_weight);
  return results;
}

template <typename Signature>
auto operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Autograd's inputs: sources, queries, key_norm_weight and, if there is one, output_norm_weight.
class OperatorRead : public Function<OperatorRead> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList inputs, int64_t sources, int64_t routes,
                               int64_t heads, double eps) {
    static auto compute = operator_named<decltype(depth_read_forward_cpu)>("depthroute::_depth_read_forward");
    at::AutoDispatchBelowADInplaceOrView guard;
    OptionalTensor output_weight;
    if (static_cast<int64_t>(inputs.size()) > sources + routes + 1) output_weight = inputs[sources + routes + 1];
    variable_list outputs = compute.call(inputs.slice(0, sources), inputs.slice(sources, routes),
                                         inputs[sources + routes], output_weight, heads, eps);
    variable_list saved = inputs.vec();
    saved.insert(saved.end(), outputs.end() - kSaved, outputs.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["sources"] = sources;
    context->saved_data["routes"] = routes;
    context->saved_data["heads"] = heads;
    outputs.resize(static_cast<size_t>(routes));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static auto differentiate =
        operator_named<decltype(depth_read_backward_cpu)>("depthroute::_depth_read_backward");
    auto sources = static_cast<size_t>(context->saved_data["sources"].toInt()),
         routes = static_cast<size_t>(context->saved_data["routes"].toInt());
    variable_list all = context->get_saved_variables();
    at::TensorList list(all);
    size_t inputs = all.size() - kSaved;
    OptionalTensor output_weight;
    if (inputs > sources + routes + 1) output_weight = all[sources + routes + 1];
    variable_list results =
        differentiate.call(gradients, list.slice(0, sources), list.slice(sources, routes), all[sources + routes],
                           output_weight, list.slice(inputs, kSaved), context->saved_data["heads"].toInt());
    results.resize(inputs + 4);  // the four arguments that are no tensors
    return results;
  }
};

std::vector<at::Tensor> depth_read_operator(at::TensorList sources, at::TensorList queries,
                                            const at::Tensor& key_norm_weight,
                                            const OptionalTensor& output_norm_weight, int64_t heads, double eps) {
  TORCH_CHECK(!sources.empty(), "depth read: 0 sources, expected 1 to ", kMaxDepthSources);
  if (!sources[0].device().is_cpu() && !sources[0].device().is_meta()) {
    return depth_read_reference(sources.vec(), queries.vec(), key_norm_weight, or_undefined(output_norm_weight),
                                heads, eps)
        .mixtures;
  }
  variable_list inputs = sources.vec();
  inputs.insert(inputs.end(), queries.begin(), queries.end());
  inputs.push_back(key_norm_weight);
  if (output_norm_weight) inputs.push_back(*output_norm_weight);
  return OperatorRead::apply(at::TensorList(inputs), static_cast<int64_t>(sources.size()),
                             static_cast<int64_t>(queries.size()), heads, eps);
}

class OperatorMemory : public torch::CustomClassHolder {
 public:
  OperatorMemory(int64_t heads, double eps) : memory_(heads, eps, Implementation::kFused) {}

  void append(const at::Tensor& source) { memory_.append(source); }
  void set_partial(const OptionalTensor& source) { memory_.set_partial(or_undefined(source)); }
  int64_t size() { return memory_.size(); }
  std::vector<at::Tensor> read(std::vector<at::Tensor> queries, const at::Tensor& key_norm_weight) {
    return memory_.read(queries, key_norm_weight).mixtures;
  }
  std::vector<at::Tensor> mix(const at::Tensor& weights) { return memory_.mix(weights); }

 private:
  DepthMemory memory_;
};

TORCH_LIBRARY(depthroute, library) {
  library.def(
      "depth_read(Tensor[] sources, Tensor[] queries, Tensor key_norm_weight, Tensor? output_norm_weight=None, int "
      "heads=1, float eps=1e-06) -> Tensor[]",
      depth_read_operator);
  library.def(
      "_depth_read_forward(Tensor[] sources, Tensor[] queries, Tensor key_norm_weight, Tensor? output_norm_weight, "
      "int heads, float eps) -> Tensor[]");
  library.def(
      "_depth_read_backward(Tensor[] mixture_gradients, Tensor[] sources, Tensor[] queries, Tensor "
      "key_norm_weight, Tensor? output_norm_weight, Tensor[] saved, int heads) -> Tensor[]");
  library.class_<OperatorMemory>("DepthMemory")
      .def(torch::init<int64_t, double>())
      .def("append", &OperatorMemory::append)
      .def("set_partial", &OperatorMemory::set_partial)
      .def("size", &OperatorMemory::size)
      .def("read", &OperatorMemory::read)
      .def("mix", &OperatorMemory::mix);
}

TORCH_LIBRARY_IMPL(depthroute, CPU, library) {
  library.impl("_depth_read_forward", depth_read_forward_cpu);
  library.impl("_depth_read_backward", depth_read_backward_cpu);
}

TORCH_LIBRARY_IMPL(depthroute, Meta, library) {
  library.impl("_depth_read_forward", depth_read_forward_meta);
  library.impl("_depth_read_backward", depth_read_backward_meta);
}

}  // namespace
}  // namespace depthroute
