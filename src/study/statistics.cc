#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "io/error.h"

namespace depthroute {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): the same numbers with every compiler, unlike std::uniform_int_distribution.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [0, bound), bound < 2^32.
  uint64_t below(uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

 private:
  uint64_t state_;
};

// Lentz's method for the continued fraction of I_x(a, b); converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double result = d;
  for (int m = 1; m <= 1000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return result;
}

// Sums whose difference is rounding alone count as equal, or a tie would be decided by the order of the additions.
double tie_tolerance(std::span<const double> differences) {
  double total = 0;
  for (double difference : differences) total += std::abs(difference);
  return total * 1e-12;
}

double exact_flip_share(std::span<const double> differences, double threshold) {
  // Gray code: each step flips one sign, so a sum costs one addition. The sign of the last pair is fixed by
  // symmetry.
  std::vector<double> signs(differences.begin(), differences.end());
  double sum = 0;
  for (double value : signs) sum += value;
  const uint64_t count = uint64_t{1} << (differences.size() - 1);
  uint64_t extreme = std::abs(sum) >= threshold;
  for (uint64_t i = 1; i < count; ++i) {
    const int bit = __builtin_ctzll(i);
    sum -= 2 * signs[bit];
    signs[bit] = -signs[bit];
    extreme += std::abs(sum) >= threshold;
  }
  return static_cast<double>(extreme) / static_cast<double>(count);
}

double drawn_flip_share(std::span<const double> differences, double threshold) {
  constexpr int kDraws = 200000;
  Random random(1);
  int extreme = 1;
  for (int draw = 0; draw < kDraws; ++draw) {
    double sum = 0;
    for (double difference : differences) sum += random.below(2) ? difference : -difference;
    extreme += std::abs(sum) >= threshold;
  }
  return extreme / (kDraws + 1.0);
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double student_t_two_sided(double t, double degrees_of_freedom) {
  if (std::isinf(t)) return 0;
  return incomplete_beta(degrees_of_freedom / 2, 0.5, degrees_of_freedom / (degrees_of_freedom + t * t));
}

double student_t_cdf(double t, double degrees_of_freedom) {
  const double tail = student_t_two_sided(t, degrees_of_freedom) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double probability, double degrees_of_freedom) {
  if (!(probability > 0 && probability < 1)) fail_input("t quantile: probability {} is not in (0, 1)", probability);
  if (probability == 0.5) return 0;
  // Searched in the upper tail, where the two-sided function keeps its relative accuracy.
  const double two_sided = 2 * std::min(probability, 1 - probability);
  double low = 0, high = 1;
  while (student_t_two_sided(high, degrees_of_freedom) > two_sided) high *= 2;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (student_t_two_sided(middle, degrees_of_freedom) > two_sided ? low : high) = middle;
  }
  return probability < 0.5 ? -high : high;
}

double sign_test(int64_t wins, int64_t losses) {
  const int64_t decided = wins + losses, fewer = std::min(wins, losses);
  if (decided == 0) return 1;
  const auto n = static_cast<double>(decided);
  double tail = 0;
  for (int64_t k = 0; k <= fewer; ++k) {
    const auto x = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) - n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

double sign_flip_test(std::span<const double> differences) {
  if (differences.empty()) return 1;
  double sum = 0;
  for (double difference : differences) sum += difference;
  const double threshold = std::abs(sum) - tie_tolerance(differences);
  return differences.size() <= kExactFlipPairs ? exact_flip_share(differences, threshold)
                                               : drawn_flip_share(differences, threshold);
}

Interval bootstrap_interval(std::span<const double> differences, uint64_t seed, int resamples) {
  if (differences.empty() || resamples < 1) fail_input("bootstrap: no differences or no resamples");
  Random random(seed);
  std::vector<double> means(resamples);
  for (double& resampled : means) {
    double sum = 0;
    for (size_t i = 0; i < differences.size(); ++i) sum += differences[random.below(differences.size())];
    resampled = sum / static_cast<double>(differences.size());
  }
  std::sort(means.begin(), means.end());
  const auto at = [&](double share) { return means[static_cast<size_t>(std::lround(share * (resamples - 1)))]; };
  return {at(0.025), at(0.975)};
}

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double least = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    least = std::max(least, std::min(1.0, static_cast<double>(order.size() - k) * p_values[order[k]]));
    adjusted[order[k]] = least;
  }
  return adjusted;
}

double mean(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::optional<double> standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double center = mean(values);
  double squares = 0;
  for (double value : values) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

PairedStatistics paired_statistics(std::span<const double> values, std::span<const double> baseline,
                                   int resamples) {
  if (values.size() != baseline.size()) {
    fail_input("paired statistics: {} values but {} of the baseline", values.size(), baseline.size());
  }
  std::vector<double> differences;
  for (size_t i = 0; i < values.size(); ++i) differences.push_back(values[i] - baseline[i]);
  PairedStatistics result;
  for (double difference : differences) {
    if (!std::isfinite(difference)) fail_input("paired statistics: a loss is not finite");
    ++(difference < 0 ? result.wins : difference > 0 ? result.losses : result.ties);
    result.largest = std::max(result.largest.value_or(0), std::abs(difference));
  }
  result.pairs = static_cast<int64_t>(differences.size());
  if (differences.empty()) return result;
  const double center = mean(differences);
  result.mean = center;
  result.perplexity_ratio = std::exp(center);
  result.sign_test = sign_test(result.wins, result.losses);
  result.sign_flip_test = sign_flip_test(differences);
  result.standard_deviation = standard_deviation(differences);
  if (!result.standard_deviation) return result;

  const auto n = static_cast<double>(differences.size());
  const double error = *result.standard_deviation / std::sqrt(n);
  const double half = student_t_quantile(0.975, n - 1) * error;
  result.t_interval = Interval{center - half, center + half};
  result.bootstrap = bootstrap_interval(differences, 1, resamples);
  // Without any spread t is 0/0 (identical runs: no evidence at all) or infinite.
  result.t_test = error > 0 ? student_t_two_sided(center / error, n - 1) : (center == 0 ? 1.0 : 0.0);
  const double baseline_spread = *standard_deviation(baseline);
  if (baseline_spread > 0) result.effect = center / baseline_spread;
  return result;
}

}  // namespace depthroute
