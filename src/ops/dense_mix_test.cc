// The fused dense mix against its definition, alone and beside depth reads of the same sources.
#include "ops/dense_mix.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>

#include "io/error.h"
#include "io/test_folder.h"
#include "ops/depth_memory.h"

namespace depthroute {
namespace {

struct Case {
  std::vector<int64_t> shape;  // of a source
  int64_t sources, streams;
  bool per_token;
  at::ScalarType dtype;

  int64_t tokens() const {
    int64_t count = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
    return count;
  }
  std::vector<int64_t> weight_shape() const {
    if (per_token) return {tokens(), streams, sources};
    return {streams, sources};
  }
};

// Mixtures, then the gradients of the sources and of the weights.
std::vector<at::Tensor> run(const Case& c, bool fused) {
  at::manual_seed(static_cast<uint64_t>(c.sources * 1000 + c.streams));
  std::vector<at::Tensor> leaves;
  for (int64_t i = 0; i < c.sources; ++i)
    leaves.push_back(at::randn(c.shape, at::kDouble).to(c.dtype).set_requires_grad(true));
  at::Tensor weights = at::randn(c.weight_shape(), at::kDouble).to(c.dtype).set_requires_grad(true);
  DepthMemory memory(1, 1e-6, fused ? Implementation::kFused : Implementation::kReference);
  for (const at::Tensor& source : leaves) memory.append(source);
  std::vector<at::Tensor> results = memory.mix(weights), upstream;
  for (size_t s = 0; s < results.size(); ++s) upstream.push_back(at::randn(c.shape, at::kDouble).to(c.dtype));
  leaves.push_back(weights);
  for (at::Tensor& gradient : torch::autograd::grad(results, leaves, upstream)) results.push_back(gradient);
  return results;
}

void expect_near(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << "tensor " << i;
    if (expected[i].numel() == 0) continue;
    double scale = std::max(1.0, expected[i].detach().abs().max().item<double>());
    EXPECT_LT((actual[i].detach() - expected[i].detach()).abs().max().item<double>() / scale, tolerance)
        << "tensor " << i;
  }
}

TEST(DenseMix, IsItsDefinitionForEveryShape) {
  std::mt19937 random(5);
  auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 120; ++round) {
    Case c{{between(0, 4), between(1, 40), between(1, 70)},
           round % 10 == 0 ? kMaxDepthSources : between(1, 20),
           between(1, kMaxDepthRoutes),
           round % 2 == 0,
           round % 3 == 0 ? at::kFloat : at::kDouble};
    SCOPED_TRACE(::testing::Message() << "round " << round << ": [" << c.shape[0] << ", " << c.shape[1] << ", "
                                      << c.shape[2] << "], " << c.sources << " sources, " << c.streams
                                      << " streams");
    expect_near(run(c, true), run(c, false), c.dtype == at::kFloat ? 2e-5 : 1e-12);
  }
}

TEST(DenseMix, BitsDependNeitherOnThreadsNorOnTheRun) {
  int threads = at::get_num_threads();
  for (bool per_token : {false, true}) {
    Case c{{3, 700, 72}, 9, 4, per_token, at::kFloat};
    at::set_num_threads(1);
    std::vector<at::Tensor> expected = run(c, true);
    for (int count : {1, 2, 3}) {
      at::set_num_threads(count);
      std::vector<at::Tensor> again = run(c, true);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(at::equal(again[i], expected[i])) << count << " " << i;
    }
  }
  at::set_num_threads(threads);
}

// A source is mixed twice with weights that depend on it, read by a depth read, and used outside; the weights of one
// stream get no gradient.
TEST(DenseMix, GradientsOfASourceUsedEverywhereAddUp) {
  at::manual_seed(3);
  at::Tensor x = at::randn({2, 5, 12}, at::kDouble), y = at::randn({2, 5, 12}, at::kDouble),
             query = at::randn({12}, at::kDouble), norm = at::randn({12}, at::kDouble),
             matrix = at::randn({12, 6}, at::kDouble);
  for (at::Tensor* leaf : {&x, &y, &query, &norm, &matrix}) leaf->set_requires_grad(true);
  auto gradients = [&](Implementation implementation) {
    DepthMemory memory(3, 1e-6, implementation);
    at::Tensor a = x.tanh(), b = y.sin();
    memory.append(a);
    memory.append(b);
    at::Tensor weights = b.matmul(matrix).reshape({10, 3, 2});
    std::vector<at::Tensor> first = memory.mix(weights);
    memory.append(first[0].mul(first[1]));
    at::Tensor read = memory.read({query}, norm).mixtures[0];
    at::Tensor second = memory.mix(at::ones({1, 3}, at::kDouble))[0];
    at::Tensor loss = (read * second).sum() + a.square().sum() + b.sum();
    return torch::autograd::grad({loss}, {x, y, query, norm, matrix});
  };
  expect_near(gradients(Implementation::kFused), gradients(Implementation::kReference), 1e-12);
}

TEST(DenseMix, NothingIsRecordedWithoutGradients) {
  at::NoGradGuard no_grad;
  DepthSource source(at::ones({4, 3}));
  std::vector<at::Tensor> mixtures = dense_mix_fused({&source}, at::full({2, 1}, 3.0));
  EXPECT_FALSE(mixtures[0].requires_grad());
  EXPECT_TRUE(mixtures[1].eq(3).all().item<bool>());
}

TEST(DenseMix, BadArgumentsAreNamed) {
  auto error = [](const std::vector<at::Tensor>& sources, const at::Tensor& weights) {
    return message_of<InputError>([&] { dense_mix_reference(sources, weights); });
  };
  at::Tensor source = at::ones({4, 3});
  EXPECT_NE(error({}, at::ones({1, 0})).find("0 sources"), std::string::npos);
  EXPECT_NE(error({source, at::ones({4, 2})}, at::ones({1, 2})).find("source 1 has shape [4, 2]"),
            std::string::npos);
  EXPECT_NE(error({source}, at::ones({1, 1}, at::kDouble)).find("weights"), std::string::npos);
  EXPECT_NE(error({source.to(at::kLong)}, at::ones({1, 1})).find("source 0 is Long"), std::string::npos);
  for (const at::Tensor& bad : {at::ones({1}), at::ones({1, 2}), at::ones({5, 1}), at::ones({3, 1, 1}),
                                at::ones({0, 1}), at::ones({4, 1, 1, 1})}) {
    EXPECT_NE(error({source}, bad).find("expected [C, 1] or [4, C, 1]"), std::string::npos);
  }
}

}  // namespace
}  // namespace depthroute
