// The kernel against a plain loop in double, for every instruction set of this machine.
#include "ops/depth_read_kernel.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace depthroute {
namespace {

constexpr double kEps = 1e-6;

// A read with its arrays. Gradients start from what `seed` puts into them, so that adding is told from assigning.
template <typename T>
struct Case {
  int64_t tokens, width, heads, sources, routes;
  bool normalised;
  std::vector<std::vector<T>> source, norm, mixture, upstream, source_gradient;
  std::vector<T> scaled_query, output_weight, scores, probabilities, output_norm;
  std::vector<double> parameter_gradient;

  Case(int64_t n, int64_t d, int64_t h, int64_t k, int64_t r, bool output_norm_wanted, int seed)
      : tokens(n), width(d), heads(h), sources(k), routes(r), normalised(output_norm_wanted) {
    std::mt19937 generator(static_cast<unsigned>(seed));
    auto random = [&](int64_t count, double scale) {
      std::normal_distribution<double> normal(0, scale);
      std::vector<T> values(static_cast<size_t>(count));
      for (T& value : values) value = static_cast<T>(normal(generator));
      return values;
    };
    for (int64_t i = 0; i < k; ++i) {
      source.push_back(random(n * d, 1));
      norm.emplace_back(static_cast<size_t>(n * h));
      source_gradient.push_back(random(n * d, 1));
    }
    for (int64_t j = 0; j < r; ++j) {
      mixture.emplace_back(static_cast<size_t>(n * d));
      upstream.push_back(random(n * d, 1));
    }
    scaled_query = random(r * d, 2 / std::sqrt(static_cast<double>(d / h)));
    if (normalised) output_weight = random(d, 1);
    scores.resize(static_cast<size_t>(r * n * k * h));
    probabilities.resize(scores.size());
    output_norm.resize(static_cast<size_t>(r * n));
    parameter_gradient.resize(static_cast<size_t>((r + 1) * d));
  }

  void set(DepthReadSources<T>* read) {
    read->tokens = tokens;
    read->width = width;
    read->heads = heads;
    read->sources = sources;
    read->routes = routes;
    for (int64_t i = 0; i < sources; ++i) read->source[i] = source[i].data();
    read->scaled_query = scaled_query.data();
    read->output_norm_weight = normalised ? output_weight.data() : nullptr;
  }

  DepthReadForward<T> forward_arguments() {
    DepthReadForward<T> read;
    set(&read);
    read.eps = kEps;
    for (int64_t i = 0; i < sources; ++i) read.reciprocal_norm[i] = norm[i].data();
    for (int64_t r = 0; r < routes; ++r) read.mixture[r] = mixture[r].data();
    read.probabilities = probabilities.data();
    read.scores = scores.data();
    read.output_reciprocal_norm = output_norm.data();
    return read;
  }

  void forward() { depth_read_forward(forward_arguments(), 0, tokens); }

  void backward() {
    DepthReadBackward<T> read;
    set(&read);
    for (int64_t i = 0; i < sources; ++i) {
      read.reciprocal_norm[i] = norm[i].data();
      read.source_gradient[i] = source_gradient[i].data();
    }
    for (int64_t r = 0; r < routes; ++r) read.mixture_gradient[r] = upstream[r].data();
    read.probabilities = probabilities.data();
    read.scores = scores.data();
    read.output_reciprocal_norm = output_norm.data();
    std::vector<T> workspace(static_cast<size_t>(depth_read_workspace(routes, width)));
    depth_read_backward(read, 0, tokens, parameter_gradient.data(), workspace.data());
  }
};

// The same read in double by loops that follow the formulas of ops/depth_read_kernel.h one by one.
struct Scalar {
  std::vector<std::vector<double>> mixture, source_gradient;
  std::vector<double> probabilities, parameter_gradient;

  template <typename T>
  explicit Scalar(const Case<T>& c)
      : probabilities(c.probabilities.size()), parameter_gradient(c.parameter_gradient.size()) {
    for (const auto& row : c.mixture) mixture.emplace_back(row.size());
    for (const auto& row : c.source_gradient) source_gradient.emplace_back(row.begin(), row.end());
    for (int64_t n = 0; n < c.tokens; ++n) {
      for (int64_t r = 0; r < c.routes; ++r) token(c, n, r);
    }
  }

  template <typename T>
  void token(const Case<T>& c, int64_t n, int64_t r) {
    const int64_t d = c.width, slice = d / c.heads, first = n * d;
    std::vector<double> norm(static_cast<size_t>(c.sources * c.heads)), score(norm.size()), p(norm.size()), h(d),
        dh(d);
    for (int64_t i = 0; i < c.sources; ++i) {
      for (int64_t j = 0; j < d; ++j) {
        double x = c.source[i][first + j];
        norm[i * c.heads + j / slice] += x * x / static_cast<double>(slice);
        score[i * c.heads + j / slice] += x * c.scaled_query[r * d + j];
      }
    }
    for (size_t k = 0; k < norm.size(); ++k) {
      norm[k] = 1 / std::sqrt(norm[k] + kEps);
      score[k] *= norm[k];
    }
    for (int64_t head = 0; head < c.heads; ++head) {
      double total = 0;
      for (int64_t i = 0; i < c.sources; ++i) total += std::exp(score[i * c.heads + head]);
      for (int64_t i = 0; i < c.sources; ++i) {
        int64_t k = i * c.heads + head;
        p[k] = std::exp(score[k]) / total;
        probabilities[((r * c.tokens + n) * c.sources + i) * c.heads + head] = p[k];
      }
    }
    for (int64_t i = 0; i < c.sources; ++i) {
      for (int64_t j = 0; j < d; ++j) h[j] += p[i * c.heads + j / slice] * c.source[i][first + j];
    }
    for (int64_t j = 0; j < d; ++j) dh[j] = c.upstream[r][first + j];
    if (c.normalised) output_norm(c, n, r, &h, &dh);
    for (int64_t j = 0; j < d; ++j) mixture[r][first + j] = c.normalised ? h_normalised[j] : h[j];
    for (int64_t head = 0; head < c.heads; ++head) gradients(c, n, r, head, norm, score, p, h, dh);
  }

  std::vector<double> h_normalised;

  template <typename T>
  void output_norm(const Case<T>& c, int64_t n, int64_t r, std::vector<double>* h, std::vector<double>* dh) {
    const int64_t d = c.width;
    double square = 0, mean = 0;
    for (double x : *h) square += x * x / static_cast<double>(d);
    double norm = 1 / std::sqrt(square + kEps);
    h_normalised.assign(d, 0);
    for (int64_t j = 0; j < d; ++j) {
      h_normalised[j] = (*h)[j] * norm * c.output_weight[j];
      parameter_gradient[c.routes * d + j] += (*h)[j] * norm * c.upstream[r][n * d + j];
      (*dh)[j] *= c.output_weight[j];
      mean += (*dh)[j] * (*h)[j] / static_cast<double>(d);
    }
    for (int64_t j = 0; j < d; ++j) (*dh)[j] = norm * ((*dh)[j] - (*h)[j] * norm * norm * mean);
  }

  template <typename T>
  void gradients(const Case<T>& c, int64_t n, int64_t r, int64_t head, const std::vector<double>& norm,
                 const std::vector<double>& score, const std::vector<double>& p, const std::vector<double>& h,
                 const std::vector<double>& dh) {
    const int64_t d = c.width, slice = d / c.heads, begin = head * slice;
    for (int64_t i = 0; i < c.sources; ++i) {
      const int64_t k = i * c.heads + head;
      double dot = 0;
      for (int64_t j = begin; j < begin + slice; ++j) dot += dh[j] * (c.source[i][n * d + j] - h[j]);
      const double score_gradient = p[k] * dot;
      for (int64_t j = begin; j < begin + slice; ++j) {
        const double x = c.source[i][n * d + j];
        source_gradient[i][n * d + j] +=
            p[k] * dh[j] + score_gradient * norm[k] *
                               (c.scaled_query[r * d + j] - score[k] * norm[k] / static_cast<double>(slice) * x);
        parameter_gradient[r * d + j] += score_gradient * norm[k] * x;
      }
    }
  }
};

template <typename A, typename B>
double relative_error(const std::vector<A>& actual, const std::vector<B>& expected) {
  double largest = 0, error = 0;
  for (size_t j = 0; j < expected.size(); ++j) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[j])));
    error = std::max(error, std::abs(static_cast<double>(actual[j]) - static_cast<double>(expected[j])));
  }
  return largest > 0 ? error / largest : error;
}

template <typename T>
class DepthReadKernel : public testing::Test {
 protected:
  ~DepthReadKernel() override { hwy::SetSupportedTargetsForTest(0); }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DepthReadKernel, Types);

template <typename T>
constexpr double kTolerance = std::is_same_v<T, float> ? 1e-5 : 1e-11;

TYPED_TEST(DepthReadKernel, EqualsTheFormulasForEveryInstructionSet) {
  struct Shape {
    int64_t tokens, width, heads, sources, routes;
    bool normalised;
  };
  const std::vector<Shape> shapes = {
      {3, 1, 1, 1, 1, false},   {5, 7, 7, 3, 2, true},     {4, 37, 1, 9, 2, false},   {70, 64, 4, 5, 3, false},
      {3, 1100, 1, 6, 2, true}, {2, 300, 3, 128, 1, true}, {6, 129, 1, 17, 4, false}, {130, 16, 1, 2, 2, true},
      {1, 48, 6, 33, 4, true},  {9, 31, 1, 8, 1, false},
  };
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    int seed = 0;
    for (const Shape& s : shapes) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", case " + std::to_string(seed));
      Case<TypeParam> c(s.tokens, s.width, s.heads, s.sources, s.routes, s.normalised, ++seed);
      Scalar expected(c);
      c.forward();
      c.backward();
      EXPECT_LT(relative_error(c.probabilities, expected.probabilities), kTolerance<TypeParam>);
      EXPECT_LT(relative_error(c.parameter_gradient, expected.parameter_gradient), kTolerance<TypeParam>);
      for (int64_t r = 0; r < s.routes; ++r) {
        EXPECT_LT(relative_error(c.mixture[r], expected.mixture[r]), kTolerance<TypeParam>);
      }
      for (int64_t i = 0; i < s.sources; ++i) {
        EXPECT_LT(relative_error(c.source_gradient[i], expected.source_gradient[i]), kTolerance<TypeParam>);
      }
    }
  }
}

// A norm that is known is taken as it is, not computed again.
TYPED_TEST(DepthReadKernel, UsesKnownNorms) {
  Case<TypeParam> c(3, 20, 1, 2, 1, false, 1);
  c.forward();
  const std::vector<TypeParam> before = c.probabilities;
  for (TypeParam& norm : c.norm[1]) norm = 0;
  DepthReadForward<TypeParam> read = c.forward_arguments();
  read.norm_known[1] = true;
  depth_read_forward(read, 0, c.tokens);
  for (int64_t n = 0; n < c.tokens; ++n) {
    TypeParam score = c.scores[2 * n];
    EXPECT_EQ(c.scores[2 * n + 1], 0);
    EXPECT_NEAR(c.probabilities[2 * n + 1], 1 / (1 + std::exp(score)), 1e-6);
  }
  EXPECT_NE(before, c.probabilities);
}

TYPED_TEST(DepthReadKernel, ARouteDoesNotDependOnTheOthers) {
  for (int64_t routes : {2, 3, 4}) {
    for (int64_t width : {5, 40, 577}) {
      Case<TypeParam> many(7, width, 1, 9, routes, true, 3);
      Case<TypeParam> one(7, width, 1, 9, 1, true, 3);
      many.source = one.source;
      many.output_weight = one.output_weight;
      for (int64_t r = 0; r < routes; ++r) {
        std::copy(one.scaled_query.begin(), one.scaled_query.end(), many.scaled_query.begin() + r * width);
      }
      one.forward();
      many.forward();
      for (const auto& mixture : many.mixture) EXPECT_EQ(mixture, one.mixture[0]);
    }
  }
}

TYPED_TEST(DepthReadKernel, ATokenDoesNotDependOnTheRange) {
  Case<TypeParam> whole(11, 45, 1, 6, 2, false, 5), parts = whole;
  whole.forward();
  DepthReadForward<TypeParam> read = parts.forward_arguments();
  for (int64_t begin : {0, 4, 5}) depth_read_forward(read, begin, begin == 0 ? 4 : begin == 4 ? 5 : 11);
  EXPECT_EQ(whole.mixture, parts.mixture);
  EXPECT_EQ(whole.probabilities, parts.probabilities);
}

TYPED_TEST(DepthReadKernel, NanAndInfinityStayInTheirSlice) {
  const TypeParam bad[] = {std::numeric_limits<TypeParam>::quiet_NaN(), std::numeric_limits<TypeParam>::infinity(),
                           -std::numeric_limits<TypeParam>::infinity()};
  for (TypeParam value : bad) {
    for (int64_t source : {0, 4, 8}) {
      Case<TypeParam> clean(4, 24, 2, 9, 2, false, 9), dirty = clean;
      dirty.source[source][2 * 24 + 13] = value;  // token 2, head 1
      clean.forward();
      clean.backward();
      dirty.forward();
      dirty.backward();
      auto compare = [&](const auto& a, const auto& b) {
        for (size_t i = 0; i < a.size(); ++i) {
          for (int64_t j = 0; j < 4 * 24; ++j) {
            if (j >= 2 * 24 + 12 && j < 3 * 24) {
              EXPECT_TRUE(std::isnan(b[i][j])) << j;
            } else {
              EXPECT_EQ(a[i][j], b[i][j]) << j;
            }
          }
        }
      };
      compare(clean.mixture, dirty.mixture);
      compare(clean.source_gradient, dirty.source_gradient);
    }
  }
}

TYPED_TEST(DepthReadKernel, LargeScoresDoNotOverflow) {
  Case<TypeParam> c(3, 16, 1, 5, 1, false, 2);
  for (TypeParam& x : c.scaled_query) x *= TypeParam{1e4};
  c.forward();
  for (int64_t n = 0; n < 3; ++n) {
    auto first = c.scores.begin() + n * 5;
    int64_t best = std::max_element(first, first + 5) - first;
    EXPECT_EQ(c.probabilities[n * 5 + best], 1);
    for (int64_t j = 0; j < 16; ++j) EXPECT_EQ(c.mixture[0][n * 16 + j], c.source[best][n * 16 + j]);
  }
}

}  // namespace
}  // namespace depthroute
