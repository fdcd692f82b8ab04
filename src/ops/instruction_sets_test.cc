// Every fused operation against its definition, for every instruction set of this machine.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>

#include "ops/attention.h"
#include "ops/depth_memory.h"
#include "ops/elementary.h"

namespace depthroute {
namespace {

using Tensors = std::vector<at::Tensor>;
// An operation of leaves, in either form.
using Operation = std::function<Tensors(const Tensors& leaves, Implementation)>;

struct Case {
  std::string name;
  std::vector<std::vector<int64_t>> shapes;  // of the leaves
  Operation operation;
};

at::Tensor targets() {
  return at::arange(11, at::kLong).remainder(7);
}

// Odd widths, so that tails count.
std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back({"RMSNorm", {{11, 37}, {37}}, [](const Tensors& x, Implementation implementation) -> Tensors {
                    return {rms_norm(x[0], x[1], 1e-6, implementation)};
                  }});
  list.push_back({"SwiGLU", {{11, 37}, {11, 37}}, [](const Tensors& x, Implementation implementation) -> Tensors {
                    return {swiglu(x[0], x[1], implementation)};
                  }});
  list.push_back(
      {"rotary embedding", {{2, 5, 3, 14}}, [](const Tensors& x, Implementation implementation) -> Tensors {
         RopeTable table = make_rope_table(5, 14, 10000, x[0].options().requires_grad(false));
         return {apply_rope(x[0], table, implementation)};
       }});
  list.push_back(
      {"cross-entropy", {{11, 13}, {7, 13}}, [](const Tensors& x, Implementation implementation) -> Tensors {
         return {cross_entropy_sum(x[0], x[1], targets(), implementation)};
       }});
  list.push_back({"attention",
                  {{2, 203, 2, 9}, {2, 203, 2, 9}, {2, 203, 2, 9}},
                  [](const Tensors& x, Implementation implementation) -> Tensors {
                    return {causal_attention(x[0], x[1], x[2], implementation)};
                  }});
  // Two reads of two and one routes in one phase, then in two: enough sources for that to pay.
  for (bool planned : {false, true}) {
    std::vector<std::vector<int64_t>> shapes(8, {2, 9, 36});
    shapes.resize(12, {36});
    list.push_back({planned ? "depth reads in two phases" : "depth reads", shapes,
                    [planned](const Tensors& x, Implementation implementation) {
                      DepthMemory memory(3, 1e-6, implementation);
                      for (size_t i = 0; i < 7; ++i) memory.append(x[i]);
                      if (planned) memory.plan({{{x[8], x[9]}, x[11]}, {{x[10]}, x[11]}});
                      Tensors results = memory.read({x[8], x[9]}, x[11]).mixtures;
                      memory.set_partial(x[7]);
                      results.push_back(memory.read({x[10]}, x[11]).mixtures[0]);
                      return results;
                    }});
  }
  list.push_back({"dense mix",
                  {{11, 37}, {11, 37}, {11, 37}, {11, 4, 3}},
                  [](const Tensors& x, Implementation implementation) {
                    DepthMemory memory(1, 1e-6, implementation);
                    for (size_t i = 0; i < 3; ++i) memory.append(x[i]);
                    return memory.mix(x[3]);
                  }});
  return list;
}

// Results and the gradients of all leaves.
Tensors run(const Case& item, const Tensors& values, Implementation implementation) {
  Tensors leaves;
  for (const at::Tensor& value : values) leaves.push_back(value.detach().requires_grad_());
  Tensors results = item.operation(leaves, implementation);
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    at::Tensor part = (result * 0.3).sin().sum();
    loss = loss.defined() ? loss + part : part;
  }
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves)) results.push_back(gradient);
  return results;
}

TEST(InstructionSets, AllGiveTheDefinitions) {
  for (at::ScalarType type : {at::kDouble, at::kFloat}) {
    for (const Case& item : cases()) {
      at::manual_seed(11);
      Tensors values;
      for (const std::vector<int64_t>& shape : item.shapes)
        values.push_back(at::randn(shape, at::kDouble).to(type));
      Tensors expected = run(item, values, Implementation::kReference);
      for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
        hwy::SetSupportedTargetsForTest(target);
        SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + item.name);
        Tensors actual = run(item, values, Implementation::kFused);
        hwy::SetSupportedTargetsForTest(0);
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t i = 0; i < actual.size(); ++i) {
          double scale = std::max(1.0, expected[i].abs().max().item<double>());
          EXPECT_LT((actual[i] - expected[i]).abs().max().item<double>() / scale,
                    type == at::kDouble ? 1e-11 : 2e-5)
              << "result " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace depthroute
