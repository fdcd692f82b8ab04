// The fused read against the reference, in values and gradients; and what both promise.
#include "ops/depth_read.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/format.h"
#include "ops/depth_read_fused.h"

namespace depthroute {
namespace {

using Read = DepthRead (*)(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&, const at::Tensor&,
                           const at::Tensor&, int64_t, double);

struct Arguments {
  std::vector<at::Tensor> sources, queries;
  at::Tensor key_weight, output_weight;
  int64_t heads = 1;

  std::vector<at::Tensor> inputs() const {
    std::vector<at::Tensor> list = sources;
    list.insert(list.end(), queries.begin(), queries.end());
    list.push_back(key_weight);
    if (output_weight.defined()) list.push_back(output_weight);
    return list;
  }
  DepthRead run(Read read) const { return read(sources, queries, key_weight, output_weight, heads, 1e-6); }
};

Arguments make(at::IntArrayRef shape, int64_t sources, int64_t routes, int64_t heads, bool normalised,
               at::ScalarType type) {
  int64_t width = shape.back();
  auto leaf = [&](const at::Tensor& tensor) { return tensor.to(type).set_requires_grad(true); };
  Arguments a;
  a.heads = heads;
  for (int64_t i = 0; i < sources; ++i) a.sources.push_back(leaf(at::randn(shape, at::kDouble)));
  for (int64_t r = 0; r < routes; ++r) {
    a.queries.push_back(
        leaf(at::randn({width}, at::kDouble) * (2 / std::sqrt(static_cast<double>(width / heads)))));
  }
  a.key_weight = leaf(at::rand({width}, at::kDouble) + 0.5);
  if (normalised) a.output_weight = leaf(at::rand({width}, at::kDouble) + 0.5);
  return a;
}

// Mixtures, probabilities, then the gradients of all inputs for a random upstream gradient (the same at every
// call).
std::vector<at::Tensor> results(const Arguments& a, Read read) {
  DepthRead out = a.run(read);
  std::vector<at::Tensor> list = out.mixtures, upstream;
  list.push_back(out.probabilities);
  for (size_t r = 0; r < out.mixtures.size(); ++r) {
    at::Tensor ramp = at::arange(out.mixtures[r].numel(), out.mixtures[r].options());
    upstream.push_back((ramp * (0.7 + static_cast<double>(r))).sin_().view(out.mixtures[r].sizes()));
  }
  for (const at::Tensor& gradient : torch::autograd::grad(out.mixtures, a.inputs(), upstream, {}, false, true)) {
    list.push_back(gradient.defined() ? gradient : at::zeros({0}));
  }
  return list;
}

// Largest difference, relative to the largest magnitude of the expected tensor where that is not tiny.
double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.sizes(), expected.sizes());
  EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
  if (expected.numel() == 0) return 0;
  double largest = expected.detach().abs().max().item<double>();
  at::Tensor difference = actual.detach().to(at::kDouble) - expected.detach().to(at::kDouble);
  double error = difference.abs().max().item<double>();
  return largest > 1e-4 ? error / largest : error;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

TEST(DepthRead, FusedEqualsReferenceAtRandomShapes) {
  at::manual_seed(1);
  std::mt19937 generator(1);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int trial = 0; trial < 60; ++trial) {
    int64_t heads = pick(0, 2) == 0 ? pick(1, 6) : 1;
    int64_t slice = trial % 20 == 0 ? 1100 / heads : pick(1, 300 / heads);
    int64_t sources = trial % 20 == 10 ? 128 : pick(1, 16), routes = pick(1, 4),
            tokens = trial % 12 == 0    ? 0
                     : trial % 20 == 10 ? 3
                                        : pick(1, 70);
    at::ScalarType type = trial % 3 == 0 ? at::kDouble : trial % 3 == 1 ? at::kFloat : at::kBFloat16;
    SCOPED_TRACE(
        format_text("trial {}: K {} R {} N {} d {} H {}", trial, sources, routes, tokens, heads * slice, heads));
    Arguments a = make({tokens, heads * slice}, sources, routes, heads, pick(0, 1) == 1, type);
    std::vector<at::Tensor> fused = results(a, depth_read_fused), reference = results(a, depth_read_reference);
    ASSERT_EQ(fused.size(), reference.size());
    // bfloat16 has eight bits: two roundings to them.
    double tolerance = type == at::kDouble ? 1e-11 : type == at::kFloat ? 1e-5 : 1.0 / 128;
    for (size_t i = 0; i < fused.size(); ++i)
      EXPECT_LT(relative_error(fused[i], reference[i]), tolerance) << "result " << i;
  }
}

// Stored in bfloat16, computed in float32: the results are those of float64 on the same inputs, rounded once.
TEST(DepthRead, Bfloat16IsRoundedOnce) {
  at::manual_seed(9);
  Arguments a = make({40, 96}, 9, 2, 1, false, at::kBFloat16), exact = a;
  for (std::vector<at::Tensor>* list : {&exact.sources, &exact.queries}) {
    for (at::Tensor& tensor : *list) tensor = tensor.detach().to(at::kDouble).requires_grad_();
  }
  exact.key_weight = a.key_weight.detach().to(at::kDouble).requires_grad_();
  auto run = [](const Arguments& arguments, Read read) {
    // Twenty reads of the same sources: in bfloat16, sums of their gradients would lose what each adds.
    std::vector<DepthSource> shared(arguments.sources.begin(), arguments.sources.end());
    std::vector<DepthSource*> pointers;
    for (DepthSource& source : shared) pointers.push_back(&source);
    std::vector<at::Tensor> outputs, upstream;
    for (int i = 0; i < 20; ++i) {
      DepthRead out = read == depth_read_reference
                          ? arguments.run(read)
                          : depth_read_fused(pointers, arguments.queries, arguments.key_weight, {}, 1, 1e-6);
      for (const at::Tensor& mixture : out.mixtures) {
        outputs.push_back(mixture);
        at::Tensor ramp = at::arange(mixture.numel(), at::kDouble).mul(0.1 * i + 0.7).sin_().view(mixture.sizes());
        upstream.push_back(ramp.to(at::kBFloat16).to(mixture.scalar_type()));
      }
    }
    std::vector<at::Tensor> list(outputs.begin(), outputs.begin() + 2);
    // Parameters get a gradient, rounded, from each read; sources one from all.
    for (const at::Tensor& gradient : torch::autograd::grad(outputs, arguments.sources, upstream))
      list.push_back(gradient);
    return list;
  };
  std::vector<at::Tensor> stored = run(a, depth_read_fused), expected = run(exact, depth_read_reference);
  for (size_t i = 0; i < stored.size(); ++i) {
    EXPECT_EQ(stored[i].scalar_type(), at::kBFloat16);
    EXPECT_LT(relative_error(stored[i].to(at::kDouble), expected[i]), 1.0 / 200) << "result " << i;
  }
  for (size_t r = 0; r < 2; ++r) {
    at::Tensor rounded = expected[r].to(at::kBFloat16);
    // Only where float32's own error crosses a tie may a value be the neighbour.
    EXPECT_GT((rounded == stored[r]).to(at::kDouble).mean().item<double>(), 0.999) << r;
  }
}

// Central differences of a scalar function of the mixtures, in double.
TEST(DepthRead, GradientsEqualFiniteDifferences) {
  at::manual_seed(2);
  Arguments a = make({3, 6}, 4, 2, 2, true, at::kDouble);
  auto loss = [&](Read read) {
    DepthRead out = a.run(read);
    return (out.mixtures[0] * out.mixtures[1]).sin().sum();
  };
  for (Read read : {Read{depth_read_fused}, Read{depth_read_reference}}) {
    std::vector<at::Tensor> gradients = torch::autograd::grad({loss(read)}, a.inputs());
    std::vector<at::Tensor> inputs = a.inputs();
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < inputs.size(); ++i) {
      double* x = inputs[i].data_ptr<double>();
      at::Tensor expected = at::empty_like(gradients[i]);
      for (int64_t j = 0; j < inputs[i].numel(); ++j) {
        constexpr double kStep = 1e-5;
        double before = x[j];
        x[j] = before + kStep;
        double up = loss(read).item<double>();
        x[j] = before - kStep;
        double down = loss(read).item<double>();
        x[j] = before;
        expected.data_ptr<double>()[j] = (up - down) / (2 * kStep);
      }
      EXPECT_LT(relative_error(gradients[i], expected), 1e-8) << "input " << i;
    }
  }
}

TEST(DepthRead, KeepsTheShapeAndTakesAnyLayout) {
  at::manual_seed(3);
  Arguments a = make({2, 3, 5, 16}, 4, 2, 4, false, at::kDouble);
  a.sources[1] = at::randn({5, 3, 2, 16}, at::kDouble).transpose(0, 2).set_requires_grad(true);
  a.queries[0] = at::randn({32}, at::kDouble).slice(0, 0, 32, 2).set_requires_grad(true);
  std::vector<at::Tensor> fused = results(a, depth_read_fused), reference = results(a, depth_read_reference);
  EXPECT_EQ(fused[0].sizes(), at::IntArrayRef({2, 3, 5, 16}));
  EXPECT_EQ(fused[2].sizes(), at::IntArrayRef({2, 30, 4, 4}));
  for (size_t i = 0; i < fused.size(); ++i)
    EXPECT_LT(relative_error(fused[i], reference[i]), 1e-11) << "result " << i;
}

TEST(DepthRead, SameBitsAtEveryRunAndForEveryNumberOfThreads) {
  at::manual_seed(4);
  Arguments a = make({700, 100}, 9, 2, 1, true, at::kFloat);
  std::vector<at::Tensor> first, again, more;
  {
    Threads threads(1);
    first = results(a, depth_read_fused);
    again = results(a, depth_read_fused);
  }
  {
    Threads threads(2);
    more = results(a, depth_read_fused);
  }
  EXPECT_TRUE(same_bits(first, again));
  EXPECT_TRUE(same_bits(first, more));
}

TEST(DepthRead, EqualQueriesGiveTheBitsOfOneRoute) {
  at::manual_seed(5);
  Arguments a = make({40, 72}, 9, 1, 1, false, at::kFloat), tied = a;
  tied.queries.push_back(a.queries[0]);
  DepthRead one = a.run(depth_read_fused), two = tied.run(depth_read_fused);
  EXPECT_TRUE(at::equal(two.mixtures[0], one.mixtures[0]));
  EXPECT_TRUE(at::equal(two.mixtures[1], one.mixtures[0]));
}

TEST(DepthRead, ZeroQueriesGiveTheMeanAndOneSourceItself) {
  at::manual_seed(6);
  for (Read read : {Read{depth_read_fused}, Read{depth_read_reference}}) {
    Arguments a = make({5, 40}, 8, 2, 1, false, at::kDouble);
    for (at::Tensor& query : a.queries) query = at::zeros_like(query);
    DepthRead out = a.run(read);
    EXPECT_LT(relative_error(out.mixtures[1], at::stack(a.sources).mean(0)), 1e-15);
    EXPECT_LT(relative_error(out.probabilities, at::full_like(out.probabilities, 1.0 / 8)), 1e-15);

    Arguments single = make({5, 40}, 1, 1, 4, false, at::kDouble);
    std::vector<at::Tensor> values = results(single, read);
    EXPECT_TRUE(at::equal(values[0], single.sources[0]));
    EXPECT_LT(values[3].abs().max().item<double>(), 1e-12);  // the query's gradient
  }
}

TEST(DepthRead, NanStaysInItsToken) {
  at::manual_seed(7);
  for (Read read : {Read{depth_read_fused}, Read{depth_read_reference}}) {
    Arguments a = make({6, 20}, 3, 2, 1, true, at::kFloat);
    std::vector<at::Tensor> clean = results(a, read);
    {
      at::NoGradGuard no_grad;
      a.sources[1].select(0, 4).select(0, 7).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    std::vector<at::Tensor> dirty = results(a, read);
    for (size_t i : {size_t{0}, size_t{1}, size_t{3}, size_t{4}, size_t{5}}) {  // mixtures and source gradients
      EXPECT_TRUE(dirty[i].select(0, 4).isnan().all().item<bool>());
      EXPECT_TRUE(at::equal(dirty[i].slice(0, 0, 4), clean[i].slice(0, 0, 4)));
      EXPECT_TRUE(at::equal(dirty[i].slice(0, 5), clean[i].slice(0, 5)));
    }
  }
}

TEST(DepthRead, OnlyTheRouteThatIsUsedGetsAGradient) {
  at::manual_seed(8);
  for (bool normalised : {false, true}) {
    Arguments a = make({6, 20}, 3, 3, 1, normalised, at::kDouble);
    auto gradients = [&](Read read) {
      return torch::autograd::grad({a.run(read).mixtures[1].square().sum()}, a.inputs(), {}, {}, false, true);
    };
    std::vector<at::Tensor> fused = gradients(depth_read_fused), reference = gradients(depth_read_reference);
    for (size_t i = 0; i < fused.size(); ++i) {
      at::Tensor expected = reference[i].defined() ? reference[i] : at::zeros_like(fused[i]);
      EXPECT_LT(relative_error(fused[i], expected), 1e-11) << "input " << i;
    }
  }
}

TEST(DepthRead, RefusesASecondDerivative) {
  Arguments a = make({2, 4}, 2, 1, 1, false, at::kDouble);
  at::Tensor loss = a.run(depth_read_fused).mixtures[0].square().sum();
  EXPECT_THROW(torch::autograd::grad({loss}, a.inputs(), {}, true, true), RunError);
}

TEST(DepthRead, ErrorsNameTheArgument) {
  auto expect = [](const std::string& words, const std::function<void(Arguments*)>& spoil) {
    for (Read read : {Read{depth_read_fused}, Read{depth_read_reference}}) {
      Arguments a = make({3, 8}, 3, 2, 2, true, at::kFloat);
      spoil(&a);
      try {
        a.run(read);
        ADD_FAILURE() << "no error: " << words;
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      }
    }
  };
  expect("0 sources", [](Arguments* a) { a->sources.clear(); });
  expect("129 sources", [](Arguments* a) { a->sources.resize(129, a->sources[0]); });
  expect("0 queries", [](Arguments* a) { a->queries.clear(); });
  expect("5 queries", [](Arguments* a) { a->queries.resize(5, a->queries[0]); });
  expect("source 2 has shape 3x9", [](Arguments* a) { a->sources[2] = at::zeros({3, 9}); });
  expect("source 1 is Double", [](Arguments* a) { a->sources[1] = at::zeros({3, 8}, at::kDouble); });
  expect("source 0 is Long", [](Arguments* a) { a->sources[0] = at::zeros({3, 8}, at::kLong); });
  expect("a query has shape 2x4", [](Arguments* a) { a->queries[1] = at::zeros({2, 4}); });
  expect("a query is Double", [](Arguments* a) { a->queries[0] = at::zeros({8}, at::kDouble); });
  expect("the key-norm weight has shape 7", [](Arguments* a) { a->key_weight = at::zeros({7}); });
  expect("the output-norm weight is Int", [](Arguments* a) { a->output_weight = at::zeros({8}, at::kInt); });
  expect("3 heads do not divide the width 8", [](Arguments* a) { a->heads = 3; });
  expect("0 heads", [](Arguments* a) { a->heads = 0; });
}

}  // namespace
}  // namespace depthroute
