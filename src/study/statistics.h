// The statistics of paired runs: variant and baseline trained from the same tensors on the same batches, one pair a
// seed. What is tested is the difference inside a pair (variant minus baseline, in nats a token), so what a seed
// does to both cancels.
//
// A negative difference is a win: the variant's loss is lower. With few pairs the exact tests cannot reach small
// p-values whatever the data say: the least one of n pairs is 2^(1-n), so five wins of five have p = 0.0625.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace depthroute {

// Regularised incomplete beta function I_x(a, b), a, b > 0, x in [0, 1] (Numerical Recipes 6.4, Lentz's continued
// fraction).
double incomplete_beta(double a, double b, double x);

// Student's t distribution. The quantile is for probability in (0, 1), both for degrees_of_freedom > 0.
double student_t_cdf(double t, double degrees_of_freedom);
double student_t_quantile(double probability, double degrees_of_freedom);
// P(|T| >= |t|).
double student_t_two_sided(double t, double degrees_of_freedom);

// Exact two-sided sign test of `wins` against `losses`, fair coin; ties are left out beforehand. No decided
// pair: 1.
double sign_test(int64_t wins, int64_t losses);

// Two-sided paired permutation test of the mean: the share of the 2^n sign flips of the differences whose |mean| is
// at least the observed one. All flips are counted up to kExactFlipPairs pairs, beyond that 200,000 drawn ones
// (fixed seed, observed one included).
inline constexpr int kExactFlipPairs = 20;
double sign_flip_test(std::span<const double> differences);

struct Interval {
  double low = 0, high = 0;
};

// 95 % percentile interval of the mean over `resamples` drawn with replacement; the same seed gives the same
// interval everywhere.
Interval bootstrap_interval(std::span<const double> differences, uint64_t seed, int resamples = 10000);

// p-values of several tests, each adjusted so that below `level` stands what Holm's step-down procedure rejects while
// the chance of any false rejection stays below `level` (Holm 1979): in ascending order, m p_1, (m - 1) p_2, .., each
// at least the one before and at most 1. In the order of the arguments.
std::vector<double> holm_adjusted(std::span<const double> p_values);

double mean(std::span<const double> values);
// With n - 1 in the denominator; nothing for fewer than two values.
std::optional<double> standard_deviation(std::span<const double> values);

// What one variant against one baseline gives. Everything that takes two pairs or more (spread, intervals, t test)
// is absent for one.
struct PairedStatistics {
  int64_t pairs = 0, wins = 0, losses = 0, ties = 0;
  std::optional<double> mean;                // nats a token
  std::optional<double> standard_deviation;  // of the differences
  std::optional<double> largest;             // size of the largest difference
  std::optional<Interval> t_interval;        // 95 %
  std::optional<Interval> bootstrap;         // 95 %
  std::optional<double> t_test;              // two-sided p-values
  std::optional<double> sign_test;
  std::optional<double> sign_flip_test;
  std::optional<double> perplexity_ratio;  // exp(mean)
  std::optional<double> effect;            // mean / standard deviation of the baseline over its seeds
};

// values[i] and baseline[i] are one pair's losses; `resamples` are those of the bootstrap. InputError where the lengths
// differ or a loss is not finite.
PairedStatistics paired_statistics(std::span<const double> values, std::span<const double> baseline,
                                   int resamples = 10000);

}  // namespace depthroute
