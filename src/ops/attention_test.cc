// The fused causal attention against LibTorch's, forward and backward.
#include "ops/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "io/error.h"

namespace depthroute {
namespace {

struct Shape {
  int64_t batch, positions, heads, width;
};

std::vector<at::Tensor> random_inputs(const Shape& shape, at::ScalarType type, double scale = 1) {
  at::manual_seed(7);
  std::vector<at::Tensor> inputs;
  for (int i = 0; i < 3; ++i)
    inputs.push_back(
        at::randn({shape.batch, shape.positions, shape.heads, shape.width}, at::kDouble).mul(scale).to(type));
  return inputs;
}

// The result and the gradients of query, key and value.
std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, Implementation implementation) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().requires_grad_());
  at::Tensor result = causal_attention(leaves[0], leaves[1], leaves[2], implementation);
  at::Tensor upstream = at::linspace(-1, 1.6, result.numel(), result.options().requires_grad(false));
  std::vector<at::Tensor> all = torch::autograd::grad({result}, leaves, {upstream.view(result.sizes())});
  all.insert(all.begin(), result.detach());
  return all;
}

void expect_same(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& actual, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << "tensor " << i;
    double scale = std::max(1.0, expected[i].abs().max().item<double>());
    EXPECT_LT((actual[i] - expected[i]).abs().max().item<double>() / scale, tolerance) << "tensor " << i;
  }
}

TEST(CausalAttention, EqualsLibTorchs) {
  // Around the sizes of blocks (48 queries, 128 keys), of tiles and of the cut into two parts (192), odd widths.
  const Shape shapes[] = {{1, 1, 1, 1},   {2, 3, 2, 4},    {1, 47, 3, 16},  {1, 48, 1, 64},  {2, 49, 2, 33},
                          {1, 129, 2, 7}, {1, 192, 1, 32}, {2, 193, 3, 24}, {1, 400, 2, 65}, {1, 257, 1, 128}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(::testing::Message() << shape.batch << " " << shape.positions << " " << shape.heads << " "
                                      << shape.width);
    for (double scale : {1.0, 8.0}) {
      std::vector<at::Tensor> inputs = random_inputs(shape, at::kDouble, scale);
      std::vector<at::Tensor> expected = run(inputs, Implementation::kReference);
      expect_same(expected, run(inputs, Implementation::kFused), 1e-12 * scale * scale);
      std::vector<at::Tensor> rounded;
      for (const at::Tensor& input : inputs) rounded.push_back(input.to(at::kFloat));
      std::vector<at::Tensor> actual = run(rounded, Implementation::kFused);
      for (at::Tensor& tensor : actual) tensor = tensor.to(at::kDouble);
      expect_same(expected, actual, 2e-5 * scale * scale);
    }
  }
}

TEST(CausalAttention, TakesAnyStrides) {
  std::vector<at::Tensor> inputs = random_inputs({2, 60, 3, 8}, at::kDouble), turned;
  for (const at::Tensor& input : inputs) turned.push_back(input.transpose(1, 2).contiguous().transpose(1, 2));
  expect_same(run(inputs, Implementation::kReference), run(turned, Implementation::kFused), 1e-12);
}

TEST(CausalAttention, SameBitsWhateverTheThreads) {
  std::vector<at::Tensor> inputs = random_inputs({2, 300, 3, 16}, at::kFloat);
  int threads = at::get_num_threads();
  at::set_num_threads(1);
  std::vector<at::Tensor> one = run(inputs, Implementation::kFused);
  at::set_num_threads(2);
  std::vector<at::Tensor> two = run(inputs, Implementation::kFused);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << "tensor " << i;
}

TEST(CausalAttention, NotANumberReachesNoEarlierPosition) {
  std::vector<at::Tensor> inputs = random_inputs({1, 100, 1, 8}, at::kFloat);
  inputs[1][0][70][0][3] = std::numeric_limits<float>::quiet_NaN();
  at::Tensor result = causal_attention(inputs[0], inputs[1], inputs[2], Implementation::kFused);
  EXPECT_FALSE(result.narrow(1, 0, 70).isnan().any().item<bool>());
  EXPECT_TRUE(result.narrow(1, 70, 30).isnan().all().item<bool>());
}

TEST(CausalAttention, ErrorsNameTheShapes) {
  std::vector<at::Tensor> inputs = random_inputs({1, 4, 2, 8}, at::kFloat);
  EXPECT_THROW(causal_attention(inputs[0], inputs[1].narrow(1, 0, 3), inputs[2], Implementation::kFused),
               InputError);
  EXPECT_THROW(causal_attention(inputs[0][0], inputs[1][0], inputs[2][0], Implementation::kFused), InputError);
}

TEST(CausalAttention, HasNoSecondDerivative) {
  std::vector<at::Tensor> inputs = random_inputs({1, 4, 2, 8}, at::kFloat);
  inputs[0].requires_grad_();
  at::Tensor result = causal_attention(inputs[0], inputs[1], inputs[2], Implementation::kFused);
  EXPECT_THROW(torch::autograd::grad({result.sum()}, {inputs[0]}, {}, true, true), RunError);
}

}  // namespace
}  // namespace depthroute
