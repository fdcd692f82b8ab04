// The elementary operations: definitions against formulas, fused forms against definitions.
#include "ops/elementary.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "io/error.h"
#include "io/test_folder.h"

namespace depthroute {
namespace {

constexpr double kEps = 1e-6;

// An operation of some leaves, in either form.
using Operation = std::function<at::Tensor(const std::vector<at::Tensor>& leaves, Implementation)>;

// The result and the gradients of all leaves.
std::vector<at::Tensor> run(const Operation& operation, const std::vector<at::Tensor>& values,
                            Implementation implementation) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& value : values) leaves.push_back(value.detach().set_requires_grad(true));
  at::Tensor result = operation(leaves, implementation);
  at::Tensor upstream =
      at::linspace(-1, 1, result.numel(), result.options().requires_grad(false)).view(result.sizes());
  std::vector<at::Tensor> all = torch::autograd::grad({result}, leaves, {upstream + 0.3});
  all.insert(all.begin(), result.detach());
  return all;
}

void expect_same(const Operation& operation, const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> expected = run(operation, values, Implementation::kReference),
                          actual = run(operation, values, Implementation::kFused);
  double tolerance = values[0].scalar_type() == at::kFloat ? 2e-5 : 1e-12;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << "tensor " << i;
    if (expected[i].numel() == 0) continue;
    double scale = std::max(1.0, expected[i].abs().max().item<double>());
    EXPECT_LT((actual[i] - expected[i]).abs().max().item<double>() / scale, tolerance) << "tensor " << i;
  }
}

const Operation kNorm = [](const std::vector<at::Tensor>& leaves, Implementation implementation) {
  return rms_norm(leaves[0], leaves.size() > 1 ? leaves[1] : at::Tensor(), kEps, implementation);
};
const Operation kSwiglu = [](const std::vector<at::Tensor>& leaves, Implementation implementation) {
  return swiglu(leaves[0], leaves[1], implementation);
};
const Operation kRope = [](const std::vector<at::Tensor>& leaves, Implementation implementation) {
  RopeTable table =
      make_rope_table(leaves[0].size(1), leaves[0].size(3), 10000, leaves[0].options().requires_grad(false));
  return apply_rope(leaves[0], table, implementation);
};
Operation cross_entropy_of(const at::Tensor& targets) {
  return [targets](const std::vector<at::Tensor>& leaves, Implementation implementation) {
    return cross_entropy_sum(leaves[0], leaves[1], targets, implementation);
  };
}

TEST(Elementary, DefinitionsAreTheirFormulas) {
  at::manual_seed(1);
  at::Tensor x = at::randn({2, 3, 4}, at::kDouble), weight = at::randn({4}, at::kDouble);
  at::Tensor norm = rms_norm(x, weight, kEps, Implementation::kReference);
  for (int64_t i = 0; i < 4; ++i) {
    double mean = x[1][2].square().mean().item<double>();
    EXPECT_NEAR(norm[1][2][i].item<double>(),
                weight[i].item<double>() * x[1][2][i].item<double>() / std::sqrt(mean + kEps), 1e-12);
  }
  // Rotary embedding at position 3, heads of width 6: pairs (i, i + 3) as complex numbers times exp(i 3 / 10000^(2i/6)).
  at::Tensor heads = at::randn({1, 4, 2, 6}, at::kDouble);
  at::Tensor turned = apply_rope(heads, make_rope_table(4, 6, 10000, heads.options()), Implementation::kReference);
  for (int64_t i = 0; i < 3; ++i) {
    double angle = 3 / std::pow(10000.0, 2.0 * static_cast<double>(i) / 6);
    double a = heads[0][3][1][i].item<double>(), b = heads[0][3][1][i + 3].item<double>();
    EXPECT_NEAR(turned[0][3][1][i].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-12);
    EXPECT_NEAR(turned[0][3][1][i + 3].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-12);
  }
  double gate = x[0][0][0].item<double>(), up = x[0][0][1].item<double>();
  EXPECT_NEAR(swiglu(x[0][0].slice(0, 0, 1), x[0][0].slice(0, 1, 2), Implementation::kReference).item<double>(),
              gate / (1 + std::exp(-gate)) * up, 1e-12);
  at::Tensor hidden = at::randn({2, 3}, at::kDouble), table = at::randn({5, 3}, at::kDouble),
             targets = at::arange(3, 5, at::kLong);
  at::Tensor logits = hidden.mm(table.t());
  double expected = 0;
  for (int64_t n = 0; n < 2; ++n)
    expected += std::log(logits[n].exp().sum().item<double>()) - logits[n][3 + n].item<double>();
  EXPECT_NEAR(cross_entropy_sum(hidden, table, targets, Implementation::kReference).item<double>(), expected,
              1e-12);
}

TEST(Elementary, FusedFormsAreTheirDefinitionsForEveryShape) {
  std::mt19937 random(3);
  auto between = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  at::manual_seed(2);
  for (int round = 0; round < 60; ++round) {
    at::TensorOptions options = round % 2 == 0 ? at::kDouble : at::kFloat;
    int64_t batch = between(0, 3), positions = between(1, 40), width = between(1, 90);
    SCOPED_TRACE(::testing::Message() << "round " << round << ": " << batch << " x " << positions << " x "
                                      << width);
    at::Tensor x = at::randn({batch, positions, width}, options), other = at::randn_like(x) * 4;
    at::Tensor weight = at::randn({width}, options);
    expect_same(kNorm, {x, weight});
    expect_same(kNorm, {x});
    expect_same(kSwiglu, {other, x});
    expect_same(kRope, {at::randn({batch, positions, between(1, 4), 2 * between(1, 20)}, options)});
    int64_t classes = between(1, 300);
    at::Tensor targets = at::randint(0, classes, {batch * positions}, at::kLong);
    expect_same(cross_entropy_of(targets), {x.flatten(0, 1), at::randn({classes, width}, options)});
  }
}

TEST(Elementary, FusedFormsTakeAnyStrides) {
  at::manual_seed(4);
  at::Tensor wide = at::randn({3, 5, 32}, at::kDouble), across = at::randn({16, 5, 3}, at::kDouble);
  auto strided = [&](const at::Tensor& leaf) { return leaf.slice(-1, 0, 32, 2); };
  Operation norm = [&](const std::vector<at::Tensor>& leaves, Implementation implementation) {
    return rms_norm(strided(leaves[0]), leaves[1].permute({2, 1, 0})[0][0], kEps, implementation).transpose(0, 1);
  };
  Operation gate = [&](const std::vector<at::Tensor>& leaves, Implementation implementation) {
    return swiglu(strided(leaves[0]), leaves[1].permute({2, 1, 0}), implementation).transpose(1, 2);
  };
  Operation rope = [&](const std::vector<at::Tensor>& leaves, Implementation implementation) {
    return kRope({leaves[0].transpose(0, 1).unflatten(-1, {8, 4}).transpose(2, 3)}, implementation).transpose(0, 2);
  };
  expect_same(norm, {wide, across});
  expect_same(gate, {wide, across});
  expect_same(rope, {wide});
}

// More logits than exist at a time, and the gradient scaled by the caller.
TEST(Elementary, CrossEntropyGoesThroughTheTokensInParts) {
  at::manual_seed(5);
  at::Tensor hidden = at::randn({70, 3}), weight = at::randn({300'000, 3}),
             targets = at::randint(0, 300'000, {70}, at::kLong);
  Operation scaled = [&](const std::vector<at::Tensor>& leaves, Implementation implementation) {
    return cross_entropy_sum(leaves[0], leaves[1], targets, implementation) / 70;
  };
  expect_same(scaled, {hidden, weight});
}

TEST(Elementary, BitsDependNeitherOnThreadsNorOnTheRun) {
  int threads = at::get_num_threads();
  at::manual_seed(6);
  at::Tensor x = at::randn({4, 500, 72}), weight = at::randn({72}), other = at::randn({4, 500, 72});
  at::Tensor heads = at::randn({4, 500, 2, 36});
  std::vector<std::vector<at::Tensor>> expected;
  for (int count : {1, 1, 2, 3}) {
    at::set_num_threads(count);
    std::vector<std::vector<at::Tensor>> results = {run(kNorm, {x, weight}, Implementation::kFused),
                                                    run(kSwiglu, {x, other}, Implementation::kFused),
                                                    run(kRope, {heads}, Implementation::kFused)};
    if (expected.empty()) expected = results;
    for (size_t i = 0; i < results.size(); ++i) {
      for (size_t j = 0; j < results[i].size(); ++j)
        EXPECT_TRUE(at::equal(results[i][j], expected[i][j])) << count << " threads, " << i << " " << j;
    }
  }
  at::set_num_threads(threads);
}

TEST(Elementary, WhatIsNotANumberStaysInItsRow) {
  at::manual_seed(7);
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor x = at::randn({5, 40}, at::kDouble);
    x[2][17] = bad;
    for (const at::Tensor& y :
         {rms_norm(x, {}, kEps, Implementation::kFused), swiglu(x, x.clone(), Implementation::kFused)}) {
      EXPECT_TRUE(y[2].isfinite().logical_not().any().item<bool>());
      for (int64_t n : {0, 1, 3, 4}) EXPECT_TRUE(y[n].isfinite().all().item<bool>()) << n;
    }
    at::Tensor loss =
        cross_entropy_sum(x, at::randn({50, 40}, at::kDouble), at::zeros({5}, at::kLong), Implementation::kFused);
    EXPECT_FALSE(std::isfinite(loss.item<double>()));
  }
}

TEST(Elementary, FusedFormsHaveNoSecondDerivative) {
  at::Tensor x = at::ones({2, 4}, at::kDouble).set_requires_grad(true);
  at::Tensor y = rms_norm(x, {}, kEps, Implementation::kFused).sum();
  EXPECT_NE(message_of<RunError>([&] {
              torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true);
            }).find("second derivative"),
            std::string::npos);
}

}  // namespace
}  // namespace depthroute
