// How many pairs a study needs: the power of the two-sided paired t test.
//
// Where the differences of the pairs are normal with mean d and standard deviation s, t of n pairs follows the
// noncentral t distribution with n - 1 degrees of freedom and noncentrality sqrt(n) d / s (Cohen 1988, chapter 2).
#pragma once
#include <cstdint>
#include <optional>

namespace depthroute {

// Probability that the test of `pairs` pairs falls below `level` where the true difference is `difference` (nats a
// token; its sign plays no part). InputError unless standard_deviation > 0, pairs >= 2 and level is in (0, 1).
double paired_t_power(double difference, double standard_deviation, int64_t pairs, double level);

// The least number of pairs (2 or more) with at least this power, in (0, 1). Nothing where kMostPairs do not reach it,
// as for a difference of 0. Without any spread two pairs do. InputError as above, but standard_deviation may be 0.
inline constexpr int64_t kMostPairs = int64_t{1} << 30;
std::optional<int64_t> required_pairs(double difference, double standard_deviation, double power, double level);

}  // namespace depthroute
