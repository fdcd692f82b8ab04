// A depth memory with the fused read against one with the reference, in the graphs that training builds.
#include "ops/depth_memory.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "io/error.h"

namespace depthroute {
namespace {

constexpr double kEps = 1e-6;
constexpr auto kFused = Implementation::kFused;
constexpr auto kReference = Implementation::kReference;

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::kDouble).set_requires_grad(true);
}

// Three blocks of two sublayers, as in Block AttnRes with two routes: a sublayer is tanh of a linear map of the
// product of its mixtures.
struct Network {
  int64_t heads = 1;
  at::Tensor embedding = leaf({2, 5, 12}), norm = leaf({12});
  std::vector<at::Tensor> matrices, queries;

  Network() {
    for (int64_t i = 0; i < 6; ++i) {
      matrices.push_back(leaf({12, 12}));
      queries.push_back(leaf({12}));
      queries.push_back(leaf({12}));
    }
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> list = {embedding, norm};
    list.insert(list.end(), matrices.begin(), matrices.end());
    list.insert(list.end(), queries.begin(), queries.end());
    return list;
  }

  // The sources are used outside the memory, too, in the last line.
  at::Tensor loss(Implementation implementation) const {
    DepthMemory memory(heads, kEps, implementation);
    at::Tensor source = embedding.tanh(), partial, outside = source.square().sum();
    memory.append(source);
    for (size_t i = 0; i < matrices.size(); ++i) {
      DepthRead read = memory.read({queries[2 * i], queries[2 * i + 1]}, norm);
      at::Tensor output = read.mixtures[0].mul(read.mixtures[1]).matmul(matrices[i]).tanh();
      partial = partial.defined() ? partial + output : output;
      memory.set_partial(partial);
      if (i % 2 == 0) continue;
      memory.append(partial);
      outside = outside + partial.sin().sum();
      partial = at::Tensor();
      memory.set_partial(partial);
    }
    at::Tensor last = memory.read({queries[0]}, norm).mixtures[0];
    return last.square().sum() + outside;
  }
};

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  double largest = expected.detach().abs().max().item<double>();
  return (actual.detach() - expected.detach()).abs().max().item<double>() / std::max(largest, 1e-3);
}

void expect_near(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << "tensor " << i;
    if (!actual[i].defined()) continue;
    EXPECT_LT(relative_error(actual[i], expected[i]), 1e-11) << "tensor " << i;
  }
}

TEST(DepthMemory, FusedEqualsReferenceInANetwork) {
  at::manual_seed(1);
  for (int64_t heads : {1, 3}) {
    Network network;
    network.heads = heads;
    std::vector<at::Tensor> fused = torch::autograd::grad({network.loss(kFused)}, network.parameters());
    expect_near(fused, torch::autograd::grad({network.loss(kReference)}, network.parameters()));
  }
}

TEST(DepthMemory, GradientsAccumulateOverForwardPasses) {
  at::manual_seed(2);
  Network network;
  auto gradients = [&](Implementation implementation) {
    for (at::Tensor parameter : network.parameters()) parameter.mutable_grad() = at::Tensor();
    at::Tensor first = network.loss(implementation), second = network.loss(implementation);
    second.backward();
    first.backward();
    network.loss(implementation).backward();
    std::vector<at::Tensor> list;
    for (const at::Tensor& parameter : network.parameters()) list.push_back(parameter.grad());
    return list;
  };
  std::vector<at::Tensor> fused = gradients(kFused);
  expect_near(fused, gradients(kReference));
}

TEST(DepthMemory, AGraphThatIsKeptGivesTheSameGradientsAgain) {
  at::manual_seed(3);
  Network network;
  at::Tensor loss = network.loss(kFused);
  std::vector<at::Tensor> first = torch::autograd::grad({loss}, network.parameters(), {}, true);
  // A pass that wants some parameters only must leave nothing behind.
  std::vector<at::Tensor> queries = torch::autograd::grad({loss}, network.queries, {}, true);
  std::vector<at::Tensor> again = torch::autograd::grad({loss}, network.parameters());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], again[i])) << i;
  for (size_t i = 0; i < queries.size(); ++i)
    EXPECT_TRUE(at::equal(queries[i], first[first.size() - queries.size() + i])) << i;
}

// What a failed pass has accumulated must not reach a later one: its second read fails after its last one has
// added.
TEST(DepthMemory, APassThatFailsLeavesNothingBehind) {
  at::manual_seed(4);
  at::Tensor source = leaf({3, 8}), query = leaf({8}), norm = leaf({8});
  DepthMemory memory(1, kEps, kFused);
  memory.append(source);
  memory.append(source.cos());
  at::Tensor early = memory.read({query}, norm).mixtures[0];
  at::Tensor doubled = early * 2;
  at::Tensor late = memory.read({query}, norm).mixtures[0];
  at::Tensor loss = (doubled + late).sum();
  bool fail = true;
  doubled.register_hook([&](const at::Tensor& gradient) {
    if (fail) fail_run("stop");
    return gradient;
  });
  EXPECT_THROW(torch::autograd::grad({loss}, {source}, {}, true), RunError);
  fail = false;
  std::vector<at::Tensor> fused = torch::autograd::grad({loss}, {source, query, norm});
  DepthMemory reference(1, kEps, kReference);
  reference.append(source);
  reference.append(source.cos());
  at::Tensor mixture = reference.read({query}, norm).mixtures[0];
  expect_near(fused, torch::autograd::grad({(3 * mixture).sum()}, {source, query, norm}));
}

TEST(DepthMemory, ReadsThatDoNotReachTheLossCountForNothing) {
  at::manual_seed(5);
  at::Tensor a = leaf({4, 6}), b = leaf({4, 6}), query = leaf({6}), norm = leaf({6});
  auto gradients = [&](Implementation implementation) {
    DepthMemory memory(2, kEps, implementation);
    memory.append(a);
    memory.append(b);
    DepthRead unused = memory.read({query}, norm);
    DepthRead used = memory.read({query}, norm);
    return torch::autograd::grad({used.mixtures[0].square().sum()}, {a, b, query, norm});
  };
  expect_near(gradients(kFused), gradients(kReference));
}

TEST(DepthMemory, SourcesWithoutGradientAndSourcesGivenTwice) {
  at::manual_seed(6);
  at::Tensor constant = at::randn({4, 6}, at::kDouble), x = leaf({4, 6}), query = leaf({6}),
             norm = at::ones({6}, at::kDouble);
  auto gradients = [&](Implementation implementation) {
    DepthMemory memory(1, kEps, implementation);
    memory.append(constant);
    memory.set_partial(x);
    at::Tensor first = memory.read({query}, norm).mixtures[0];
    memory.append(x);  // and still the partial sum: a source twice in one read
    DepthRead second = memory.read({query, query}, norm);
    return torch::autograd::grad({(first * second.mixtures[0] + second.mixtures[1].sin()).sum()}, {x, query});
  };
  expect_near(gradients(kFused), gradients(kReference));
}

TEST(DepthMemory, WithoutGradientsThereIsNoGraph) {
  at::manual_seed(7);
  at::Tensor x = leaf({4, 6}), query = leaf({6}), norm = leaf({6});
  DepthMemory memory(1, kEps, kFused);
  at::Tensor quiet;
  {
    at::NoGradGuard no_grad;
    memory.append(x);
    memory.append(x.sin());
    quiet = memory.read({query}, norm).mixtures[0];
  }
  EXPECT_FALSE(quiet.requires_grad());
  DepthRead recorded = memory.read({query}, norm);
  EXPECT_TRUE(recorded.mixtures[0].requires_grad());
  EXPECT_FALSE(recorded.probabilities.requires_grad());
  EXPECT_TRUE(at::equal(quiet, recorded.mixtures[0]));
  // The source appended without recording is a leaf all the same, and gets its gradient.
  std::vector<at::Tensor> fused = torch::autograd::grad({recorded.mixtures[0].sum()}, {x});
  DepthMemory reference(1, kEps, kReference);
  reference.append(x);
  reference.append(x.sin().detach());
  expect_near(fused, torch::autograd::grad({reference.read({query}, norm).mixtures[0].sum()}, {x}));
}

// Nobody holds the sources any longer: neither when backward was never called, nor after it while the loss still
// exists.
TEST(DepthMemory, FreesItsSources) {
  at::Tensor x = leaf({4, 6}), query = leaf({6}), norm = leaf({6});
  for (bool backward : {false, true}) {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage = [&] {
      at::Tensor source = x.sin();
      return c10::weak_intrusive_ptr<c10::StorageImpl>(source.storage().getWeakStorageImpl());
    }();
    at::Tensor loss;
    {
      at::Tensor source = x.sin();
      storage = c10::weak_intrusive_ptr<c10::StorageImpl>(source.storage().getWeakStorageImpl());
      DepthMemory memory(1, kEps, kFused);
      memory.append(source);
      memory.append(x);
      loss = memory.read({query}, norm).mixtures[0].sum() + memory.read({query}, norm).mixtures[0].sum();
    }
    EXPECT_FALSE(storage.expired());
    if (backward) {
      loss.backward();
    } else {
      loss.reset();
    }
    EXPECT_TRUE(storage.expired()) << "backward: " << backward;
  }
}

TEST(DepthMemory, CountsSourcesAndRefusesNone) {
  at::Tensor x = leaf({4, 6}), query = leaf({6}), norm = leaf({6});
  for (auto implementation : {kFused, kReference}) {
    DepthMemory memory(1, kEps, implementation);
    EXPECT_THROW(memory.read({query}, norm), InputError);
    EXPECT_THROW(memory.append(at::Tensor()), InputError);
    memory.append(x);
    memory.set_partial(x.sin());
    EXPECT_EQ(memory.size(), 2);
    memory.set_partial(at::Tensor());
    EXPECT_EQ(memory.size(), 1);
    EXPECT_TRUE(at::equal(memory.read({query}, norm).mixtures[0], x));
  }
}

// A block of four sublayers with two and one routes in turn over seven completed sources: enough for two phases.
struct LongBlock {
  std::vector<at::Tensor> sources, matrices, norms;
  std::vector<std::vector<at::Tensor>> queries;

  explicit LongBlock(at::ScalarType type) {
    auto draw = [&](at::IntArrayRef shape) { return at::randn(shape, type).set_requires_grad(true); };
    for (int64_t i = 0; i < 7; ++i) sources.push_back(draw({2, 5, 12}));
    for (int64_t i = 0; i < 4; ++i) {
      matrices.push_back(draw({12, 12}));
      norms.push_back(draw({12}));
      queries.push_back({draw({12})});
      if (i % 2 == 0) queries.back().push_back(draw({12}));
    }
  }

  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> list = sources;
    list.insert(list.end(), matrices.begin(), matrices.end());
    list.insert(list.end(), norms.begin(), norms.end());
    for (const std::vector<at::Tensor>& of_read : queries) list.insert(list.end(), of_read.begin(), of_read.end());
    return list;
  }

  // All mixtures and probabilities, then the sum of the block.
  std::vector<at::Tensor> run(Implementation implementation, bool planned, int64_t heads) const {
    DepthMemory memory(heads, kEps, implementation);
    for (const at::Tensor& source : sources) memory.append(source);
    std::vector<PlannedRead> plan;
    for (size_t i = 0; i < queries.size(); ++i) plan.push_back({queries[i], norms[i]});
    if (planned) memory.plan(plan);
    std::vector<at::Tensor> results;
    at::Tensor partial;
    for (size_t i = 0; i < queries.size(); ++i) {
      DepthRead read = memory.read(queries[i], norms[i]);
      results.insert(results.end(), read.mixtures.begin(), read.mixtures.end());
      results.push_back(read.probabilities);
      at::Tensor output = read.mixtures.front().mul(read.mixtures.back()).matmul(matrices[i]).tanh();
      partial = partial.defined() ? partial + output : output;
      memory.set_partial(partial);
    }
    memory.append(partial);
    results.push_back(memory.read(queries[0], norms[0]).mixtures[0]);
    return results;
  }
};

TEST(TwoPhases, EqualOnePhase) {
  at::manual_seed(6);
  ASSERT_LT(two_phase_rows(7, {2, 2, 2, 2}), one_phase_rows(7, {2, 2, 2, 2}));
  for (int64_t heads : {1, 4}) {
    LongBlock block(at::kDouble);
    std::vector<at::Tensor> expected = block.run(kReference, true, heads), planned = block.run(kFused, true, heads),
                            plain = block.run(kFused, false, heads);
    expect_near(planned, expected);
    auto gradients = [&](const std::vector<at::Tensor>& results) {
      return torch::autograd::grad({results.back().square().sum()}, block.leaves());
    };
    std::vector<at::Tensor> wanted = gradients(expected);
    expect_near(gradients(planned), wanted);
    expect_near(gradients(plain), wanted);
  }
}

TEST(TwoPhases, NotANumberStaysInItsToken) {
  at::manual_seed(7);
  at::NoGradGuard no_grad;
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    LongBlock block(at::kFloat);
    block.sources[2][1][3][5] = bad;
    std::vector<at::Tensor> results = block.run(kFused, true, 1);
    at::Tensor last = results[results.size() - 3].flatten(0, -2);  // the last read of the block
    for (int64_t n = 0; n < 10; ++n) EXPECT_EQ(last[n].isnan().all().item<bool>(), n == 8) << n;
  }
}

TEST(TwoPhases, RowsAreCounted) {
  // One read has nothing to share. Two reads of one route over K sources: 2 K + 1 + 2 against K + 2 + 3.
  EXPECT_EQ(one_phase_rows(5, {2}), two_phase_rows(5, {2}));
  EXPECT_EQ(one_phase_rows(7, {1, 1}), 17);
  EXPECT_EQ(two_phase_rows(7, {1, 1}), 12);
  // Six routes take two passes, and no read is cut: (2, 1) and (2, 1).
  EXPECT_EQ(one_phase_rows(8, {2, 1, 2, 1}), 4 * 8 + 3 + 6);
  EXPECT_EQ(two_phase_rows(8, {2, 1, 2, 1}), 2 * 8 + 6 + 3 + 2 * 4);
}

TEST(TwoPhases, AReadOutOfPlanIsAnError) {
  LongBlock block(at::kFloat);
  DepthMemory memory(1, kEps, kFused);
  for (const at::Tensor& source : block.sources) memory.append(source);
  std::vector<PlannedRead> plan;
  for (size_t i = 0; i < 4; ++i) plan.push_back({block.queries[i], block.norms[i]});
  memory.plan(plan);
  EXPECT_THROW(memory.read(block.queries[1], block.norms[1]), RunError);
  memory.plan(plan);
  memory.read(block.queries[0], block.norms[0]);
  EXPECT_THROW(memory.read(block.queries[1], block.norms[1]), RunError) << "no partial sum";
  memory.append(block.sources[0]);  // ends the plan
  EXPECT_EQ(memory.read(block.queries[1], block.norms[1]).mixtures.size(), 1U);
}

}  // namespace
}  // namespace depthroute
