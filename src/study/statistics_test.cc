// The expected values are scipy 1.x's (scipy.stats.t, scipy.special.betainc, binomtest, ttest_1samp,
// permutation_test).
#include "study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "io/error.h"

namespace depthroute {
namespace {

const std::vector<double> kDifferences = {-0.099, -0.028, -0.027, 0.004, -0.05};

PairedStatistics of_differences(const std::vector<double>& differences) {
  return paired_statistics(differences, std::vector<double>(differences.size(), 0.0));
}

TEST(IncompleteBeta, EqualsScipy) {
  EXPECT_NEAR(incomplete_beta(0.5, 0.5, 0.3), 0.36901011956554536, 1e-13);
  EXPECT_NEAR(incomplete_beta(2, 3, 0.4), 0.5248, 1e-13);
  EXPECT_NEAR(incomplete_beta(10, 0.5, 0.9), 0.15164090963470994, 1e-13);
  EXPECT_NEAR(incomplete_beta(50, 60, 0.45), 0.4642352914306031, 1e-12);
  EXPECT_EQ(incomplete_beta(2, 3, 0), 0);
  EXPECT_EQ(incomplete_beta(2, 3, 1), 1);
}

TEST(StudentT, QuantilesEqualScipy) {
  struct Case {
    double degrees, q975, q95, q995, q60, cdf13;
  };
  for (const Case& c :
       {Case{1, 12.706204736174694, 6.313751514675037, 63.656741162871526, 0.32491969623290634, 0.7912855998398473},
        Case{2, 4.302652729749462, 2.9199855803537242, 9.924843200918287, 0.2886751345948128, 0.8383764840919798},
        Case{4, 2.7764451051977934, 2.1318467863266495, 4.604094871349992, 0.2707222947075976, 0.868274201764388},
        Case{9, 2.262157162798205, 1.833112932656237, 3.249835541592126, 0.260955336473911, 0.8870468136634754},
        Case{100, 1.9839715185235518, 1.6602343260853392, 2.6258905214380173, 0.25402218245822766,
             0.9017052682888169}}) {
    EXPECT_NEAR(student_t_quantile(0.975, c.degrees) / c.q975, 1, 1e-11);
    EXPECT_NEAR(student_t_quantile(0.95, c.degrees) / c.q95, 1, 1e-11);
    EXPECT_NEAR(student_t_quantile(0.995, c.degrees) / c.q995, 1, 1e-11);
    EXPECT_NEAR(student_t_quantile(0.6, c.degrees) / c.q60, 1, 1e-11);
    EXPECT_NEAR(student_t_quantile(0.025, c.degrees) / c.q975, -1, 1e-11);
    EXPECT_NEAR(student_t_cdf(1.3, c.degrees), c.cdf13, 1e-12);
    EXPECT_NEAR(student_t_cdf(-1.3, c.degrees), 1 - c.cdf13, 1e-12);
  }
  EXPECT_EQ(student_t_quantile(0.5, 3), 0);
  EXPECT_THROW(student_t_quantile(1, 3), InputError);
}

TEST(SignTest, EqualsTheBinomialTest) {
  EXPECT_NEAR(sign_test(5, 0), 0.0625, 1e-14);
  EXPECT_NEAR(sign_test(4, 1), 0.375, 1e-14);
  EXPECT_NEAR(sign_test(9, 1), 0.021484375, 1e-14);
  EXPECT_NEAR(sign_test(0, 3), 0.25, 1e-14);
  EXPECT_NEAR(sign_test(2, 2), 1, 1e-14);
  EXPECT_EQ(sign_test(0, 0), 1);
}

// The definition, without the Gray code: every pattern of signs.
double counted_flips(const std::vector<double>& differences) {
  const size_t n = differences.size();
  double observed = 0;
  for (double d : differences) observed += d;
  int extreme = 0;
  for (uint64_t pattern = 0; pattern < (uint64_t{1} << n); ++pattern) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += (pattern >> i & 1) ? -differences[i] : differences[i];
    extreme += std::abs(sum) >= std::abs(observed) - 1e-12;
  }
  return extreme / std::exp2(n);
}

TEST(SignFlipTest, CountsEveryPattern) {
  EXPECT_NEAR(sign_flip_test(kDifferences), 0.125,
              1e-14);  // scipy.stats.permutation_test(permutation_type='samples')
  std::vector<double> differences;
  for (int i = 0; i < 12; ++i) {
    differences.push_back(std::sin(i * 1.7) - 0.2);
    EXPECT_NEAR(sign_flip_test(differences), counted_flips(differences), 1e-14) << i;
  }
  EXPECT_EQ(sign_flip_test(std::vector<double>{0, 0, 0}), 1);
  EXPECT_EQ(sign_flip_test(std::vector<double>{-0.1, -0.1, -0.1, -0.1, -0.1}), 0.0625);
}

TEST(SignFlipTest, DrawsAgreeWithTheNormalLimitForManyPairs) {
  std::vector<double> differences(100, -1.0);
  for (int i = 0; i < 40; ++i) differences[i] = 1.0;
  // 60 of 100: the binomial probability of a split at least as uneven is 0.0569.
  EXPECT_NEAR(sign_flip_test(differences), 0.0569, 0.003);
  EXPECT_EQ(sign_flip_test(differences), sign_flip_test(differences));
}

TEST(Bootstrap, IsSeededAndCoversWhatThePercentilesShould) {
  const Interval one = bootstrap_interval(kDifferences, 1), again = bootstrap_interval(kDifferences, 1);
  EXPECT_EQ(one.low, again.low);
  EXPECT_EQ(one.high, again.high);
  EXPECT_NE(one.low, bootstrap_interval(kDifferences, 2, 50).low);
  // A mean of n = 1000 points is nearly normal: half-width 1.96 sd / sqrt(n).
  std::vector<double> many;
  for (int i = 0; i < 1000; ++i) many.push_back((i % 10) / 10.0);
  const double half = 1.96 * *standard_deviation(many) / std::sqrt(1000.0);
  const Interval wide = bootstrap_interval(many, 3);
  EXPECT_NEAR(wide.low, mean(many) - half, 0.1 * half);
  EXPECT_NEAR(wide.high, mean(many) + half, 0.1 * half);
}

TEST(PairedStatistics, EqualScipysTTest) {
  const PairedStatistics result = of_differences(kDifferences);
  EXPECT_EQ(result.pairs, 5);
  EXPECT_EQ(result.wins, 4);
  EXPECT_EQ(result.losses, 1);
  EXPECT_NEAR(*result.mean, -0.04, 1e-15);
  EXPECT_NEAR(*result.standard_deviation, 0.03817721833764215, 1e-15);
  EXPECT_NEAR(result.t_interval->low, -0.08740327756141482, 1e-13);
  EXPECT_NEAR(result.t_interval->high, 0.007403277561414817, 1e-13);
  EXPECT_NEAR(*result.t_test, 0.07913307368990025, 1e-13);
  EXPECT_NEAR(*result.perplexity_ratio, std::exp(-0.04), 1e-15);
  EXPECT_FALSE(result.effect) << "the baseline has no spread";
}

TEST(PairedStatistics, EffectIsInUnitsOfTheBaselinesSpread) {
  const std::vector<double> baseline = {3.0, 3.2, 3.4}, values = {2.9, 3.2, 3.2};
  EXPECT_NEAR(*paired_statistics(values, baseline).effect, -0.1 / 0.2, 1e-12);
}

// statsmodels.stats.multitest.multipletests(p, method="holm")
TEST(Holm, AgreesWithStatsmodels) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005, 0.5, 0.04};
  const std::vector<double> expected = {0.05, 0.12, 0.12, 0.03, 0.5, 0.12};
  const std::vector<double> adjusted = holm_adjusted(p);
  ASSERT_EQ(adjusted.size(), expected.size());
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], 1e-15) << i;
  EXPECT_TRUE(holm_adjusted({}).empty());
  EXPECT_EQ(holm_adjusted(std::vector<double>{0.7, 0.9}), (std::vector<double>{1.0, 1.0}));
}

TEST(PairedStatistics, OnePairHasNoInterval) {
  const PairedStatistics one = of_differences({-0.03});
  EXPECT_TRUE(one.mean && one.sign_test && one.perplexity_ratio);
  EXPECT_EQ(*one.sign_test, 1);
  EXPECT_FALSE(one.standard_deviation || one.t_interval || one.bootstrap || one.t_test || one.effect);
  const PairedStatistics none = of_differences({});
  EXPECT_EQ(none.pairs, 0);
  EXPECT_FALSE(none.mean || none.sign_test);
}

TEST(PairedStatistics, TiesCountForNobody) {
  const PairedStatistics result = of_differences({0, 0, -0.1, 0.2});
  EXPECT_EQ(result.ties, 2);
  EXPECT_EQ(result.wins, 1);
  EXPECT_EQ(*result.sign_test, 1);
  const PairedStatistics identical = of_differences({0, 0, 0, 0, 0});
  EXPECT_EQ(identical.ties, 5);
  EXPECT_EQ(*identical.t_test, 1);
  EXPECT_EQ(*identical.sign_flip_test, 1);
  EXPECT_EQ(identical.t_interval->low, 0);
  EXPECT_EQ(*of_differences({-0.25, -0.25}).t_test, 0);
}

TEST(PairedStatistics, RefusesWhatIsNotPairedOrNotFinite) {
  EXPECT_THROW(paired_statistics(std::vector<double>{1}, std::vector<double>{1, 2}), InputError);
  EXPECT_THROW(of_differences({std::numeric_limits<double>::quiet_NaN()}), InputError);
}

}  // namespace
}  // namespace depthroute
