#include "ops/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "io/error.h"

namespace depthroute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kFunction = "function";

struct HeldFunction : torch::CustomClassHolder {
  explicit HeldFunction(TensorFunction function) : compute(std::move(function)) {}
  TensorFunction compute;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
 public:
  static at::Tensor forward(AutogradContext* context, at::TensorList inputs, TensorFunction compute) {
    context->save_for_backward(inputs.vec());
    at::Tensor output = compute(inputs.vec());
    context->saved_data[kFunction] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldFunction>(std::move(compute)));
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      fail_run("what activation checkpointing recomputes has no second derivative");
    }
    auto held = c10::static_intrusive_pointer_cast<HeldFunction>(context->saved_data[kFunction].toCapsule());
    variable_list inputs, wanted;
    for (const at::Tensor& saved : context->get_saved_variables()) {
      bool needed = context->needs_input_grad(inputs.size());
      inputs.push_back(saved.detach().requires_grad_(needed));
      if (needed) wanted.push_back(inputs.back());
    }
    at::Tensor output;
    {
      at::AutoGradMode recording(true);
      output = held->compute(inputs);
    }
    variable_list found =
        torch::autograd::grad({output}, wanted, {gradients[0]}, false, false, /*allow_unused=*/true);
    variable_list results(inputs.size() + 1);  // the function counts
    for (size_t i = 0, next = 0; i < inputs.size(); ++i) {
      if (inputs[i].requires_grad()) results[i] = found[next++];
    }
    return results;
  }
};

}  // namespace

at::Tensor recomputed(const std::vector<at::Tensor>& inputs, TensorFunction compute) {
  return Recomputed::apply(at::TensorList(inputs), std::move(compute));
}

}  // namespace depthroute
