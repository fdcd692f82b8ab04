// The registered operators, as a program finds them through LibTorch's dispatcher.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/custom_class.h>

#include "ops/depth_read.h"

namespace depthroute {
namespace {

using Read = std::vector<at::Tensor>(at::TensorList, at::TensorList, const at::Tensor&,
                                     const std::optional<at::Tensor>&, int64_t, double);

auto depth_read_operator() {
  return c10::Dispatcher::singleton().findSchemaOrThrow("depthroute::depth_read", "").typed<Read>();
}

struct Leaves {
  std::vector<at::Tensor> sources, queries;
  at::Tensor key_weight;
  std::optional<at::Tensor> output_weight;

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> list = sources;
    list.insert(list.end(), queries.begin(), queries.end());
    list.push_back(key_weight);
    if (output_weight) list.push_back(*output_weight);
    return list;
  }
};

Leaves make_leaves(int64_t routes, bool normalised, const at::TensorOptions& options) {
  at::manual_seed(3);
  Leaves leaves;
  auto draw = [&](at::IntArrayRef shape) { return at::randn(shape, options).requires_grad_(); };
  for (int i = 0; i < 4; ++i) leaves.sources.push_back(draw({2, 5, 12}));
  for (int64_t r = 0; r < routes; ++r) leaves.queries.push_back(draw({12}));
  leaves.key_weight = draw({12});
  if (normalised) leaves.output_weight = draw({12});
  return leaves;
}

// A scalar that uses all mixtures but the last one of several.
at::Tensor loss_of(const std::vector<at::Tensor>& mixtures) {
  at::Tensor loss = mixtures[0].square().sum();
  for (size_t r = 1; r + 1 < mixtures.size(); ++r) loss = loss + mixtures[r].sin().sum();
  return loss;
}

TEST(Operators, DepthReadEqualsItsDefinition) {
  for (int64_t routes : {1, 2, 3}) {
    for (bool normalised : {false, true}) {
      for (int64_t heads : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << routes << " routes, " << heads << " heads, " << normalised);
        Leaves leaves = make_leaves(routes, normalised, at::kDouble);
        at::Tensor output_weight = leaves.output_weight.value_or(at::Tensor());
        std::vector<at::Tensor> expected =
            depth_read_reference(leaves.sources, leaves.queries, leaves.key_weight, output_weight, heads, 1e-6)
                .mixtures;
        std::vector<at::Tensor> actual = depth_read_operator().call(
            leaves.sources, leaves.queries, leaves.key_weight, leaves.output_weight, heads, 1e-6);
        ASSERT_EQ(actual.size(), expected.size());
        for (size_t r = 0; r < actual.size(); ++r) EXPECT_TRUE(at::allclose(actual[r], expected[r], 1e-12, 1e-12));
        std::vector<at::Tensor> inputs = leaves.all();
        std::vector<at::Tensor> wanted =
            torch::autograd::grad({loss_of(expected)}, inputs, {}, {}, false, /*allow_unused=*/true);
        std::vector<at::Tensor> got = torch::autograd::grad({loss_of(actual)}, inputs, {}, {}, false, true);
        for (size_t i = 0; i < inputs.size(); ++i) {
          at::Tensor reference = wanted[i].defined() ? wanted[i] : at::zeros_like(inputs[i]);
          EXPECT_TRUE(at::allclose(got[i], reference, 1e-10, 1e-10)) << "input " << i;
        }
      }
    }
  }
}

TEST(Operators, ShapesAreKnownWithoutData) {
  for (bool normalised : {false, true}) {
    Leaves leaves = make_leaves(2, normalised, at::TensorOptions(at::kFloat).device(at::kMeta));
    std::vector<at::Tensor> mixtures = depth_read_operator().call(leaves.sources, leaves.queries, leaves.key_weight,
                                                                  leaves.output_weight, 3, 1e-6);
    ASSERT_EQ(mixtures.size(), 2U);
    EXPECT_TRUE(mixtures[1].is_meta());
    EXPECT_EQ(mixtures[1].sizes(), leaves.sources[0].sizes());
    std::vector<at::Tensor> inputs = leaves.all();
    std::vector<at::Tensor> gradients = torch::autograd::grad({mixtures[0].sum()}, inputs, {}, {}, false, true);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(gradients[i].sizes(), inputs[i].sizes()) << i;
  }
}

TEST(Operators, ErrorsNameTheArgument) {
  Leaves leaves = make_leaves(1, false, at::kFloat);
  try {
    depth_read_operator().call(leaves.sources, leaves.queries, leaves.key_weight, {}, 5, 1e-6);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("heads"), std::string::npos) << error.what();
  }
  EXPECT_ANY_THROW(depth_read_operator().call({}, leaves.queries, leaves.key_weight, {}, 1, 1e-6));
}

// As a program with TorchScript values, such as Python, uses it.
TEST(Operators, DepthMemoryReadsWhatItHolds) {
  Leaves leaves = make_leaves(2, false, at::kDouble);
  auto type = torch::getCustomClass("__torch__.torch.classes.depthroute.DepthMemory");
  torch::jit::Stack stack;
  auto call = [&](const c10::IValue& self, const char* method, std::vector<c10::IValue> arguments) {
    stack = {self};
    stack.insert(stack.end(), arguments.begin(), arguments.end());
    type->getMethod(method).run(stack);
    return stack.back();
  };
  c10::IValue memory = c10::ivalue::Object::create(c10::StrongTypePtr(nullptr, type), 1);
  call(memory, "__init__", {int64_t{3}, 1e-6});
  for (size_t i = 0; i < 3; ++i) call(memory, "append", {leaves.sources[i]});
  call(memory, "set_partial", {leaves.sources[3]});
  EXPECT_EQ(call(memory, "size", {}).toInt(), 4);
  std::vector<at::Tensor> mixtures = call(memory, "read", {leaves.queries, leaves.key_weight}).toTensorVector();
  std::vector<at::Tensor> expected =
      depth_read_reference(leaves.sources, leaves.queries, leaves.key_weight, {}, 3, 1e-6).mixtures;
  for (size_t r = 0; r < 2; ++r) EXPECT_TRUE(at::allclose(mixtures[r], expected[r], 1e-12, 1e-12));
  call(memory, "set_partial", {c10::IValue()});
  EXPECT_EQ(call(memory, "size", {}).toInt(), 3);
}

}  // namespace
}  // namespace depthroute
