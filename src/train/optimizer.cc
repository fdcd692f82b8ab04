#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace depthroute {

ParameterShares share_parameters(const ParameterStore& parameters, int64_t processes, int64_t rank) {
  const auto& items = parameters.items();
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](size_t i) { return items[i].second.numel(); });
  ParameterShares shares{.owners = std::vector<int64_t>(items.size()), .rank = rank};
  std::vector<int64_t> elements(static_cast<size_t>(processes));
  for (size_t i : order) {
    auto least = std::ranges::min_element(elements);
    shares.owners[i] = least - elements.begin();
    *least += items[i].second.numel();
  }
  return shares;
}

AdamW::AdamW(const ParameterStore& parameters, const TrainConfig& config, ParameterShares shares)
    : config_(config), shares_(std::move(shares)), groups_(2) {
  step_ = at::zeros({1}, at::kFloat);
  groups_[0].weight_decay = config.weight_decay;
  for (size_t i = 0; i < parameters.items().size(); ++i) {
    if (!shares_.own(i)) continue;
    const auto& [name, parameter] = parameters.items()[i];
    // Biases are none of the matrices, whatever their shape.
    Group& group = groups_[parameter.dim() >= 2 && !name.ends_with(".bias") ? 0 : 1];
    group.names.push_back(name);
    group.parameters.push_back(parameter);
    group.averages.push_back(at::zeros_like(parameter.detach()));
    group.squares.push_back(at::zeros_like(parameter.detach()));
    group.steps.push_back(step_);
  }
}

void AdamW::step(double learning_rate, double divisor) {
  at::NoGradGuard no_grad;
  std::optional<at::Tensor> scale;
  if (divisor != 1) scale = at::full({1}, divisor, at::kFloat);
  // The kernel uses the step count as it is; one tensor serves all parameters.
  step_.add_(1);
  for (Group& group : groups_) {
    if (group.parameters.empty()) continue;  // the kernel takes no empty list
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : group.parameters) {
      gradients.push_back(parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
    }
    at::_fused_adamw_(group.parameters, gradients, group.averages, group.squares, {}, group.steps, learning_rate,
                      config_.beta1, config_.beta2, group.weight_decay, config_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, scale);
  }
}

std::map<std::string, at::Tensor> AdamW::state() const {
  std::map<std::string, at::Tensor> state = {{"step", step_}};
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.names.size(); ++i) {
      state["exp_avg." + group.names[i]] = group.averages[i];
      state["exp_avg_sq." + group.names[i]] = group.squares[i];
    }
  }
  return state;
}

double gradient_square_sum(const ParameterStore& parameters, const ParameterShares& shares) {
  at::NoGradGuard no_grad;
  double sum = 0;
  for (size_t i = 0; i < parameters.items().size(); ++i) {
    const at::Tensor& gradient = parameters.items()[i].second.grad();
    if (!gradient.defined() || !shares.own(i)) continue;
    auto norm = at::linalg_vector_norm(gradient, 2).item<double>();
    sum += norm * norm;
  }
  return sum;
}

}  // namespace depthroute
