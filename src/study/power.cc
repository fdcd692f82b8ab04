#include "study/power.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/error.h"
#include "study/statistics.h"

namespace depthroute {
namespace {

double normal_cdf(double z) {
  return std::erfc(-z / std::numbers::sqrt2) / 2;
}

// Density at s of the sample's standard deviation in units of the true one, chi / sqrt(degrees).
double deviation_density(double s, double degrees) {
  if (s <= 0) return degrees == 1 ? std::sqrt(2 / std::numbers::pi) : 0;
  // 2 h^h / Gamma(h) s^(degrees - 1) exp(-h s^2), h = degrees / 2, over exp(-h), which the exponent below has taken in. For
  // many degrees Stirling's series, or what is left of the large terms would be their rounding.
  const double h = degrees / 2;
  const double log_scale =
      h < 1000 ? std::log(2.0) + h * std::log(h) - std::lgamma(h) - h
               : std::log(2.0) + 0.5 * std::log(h / (2 * std::numbers::pi)) - 1 / (12 * h) + 1 / (360 * h * h * h);
  return std::exp(log_scale + degrees * (std::log(s) - (s * s - 1) / 2) - std::log(s));
}

template <typename Function>
double simpson(const Function& f, double low, double high) {
  constexpr int kPanels = 1000;  // even; an error of about 1e-10 with few degrees of freedom, less with many
  const double step = (high - low) / kPanels;
  double sum = f(low) + f(high);
  for (int i = 1; i < kPanels; ++i) sum += (i % 2 ? 4 : 2) * f(low + i * step);
  return sum * step / 3;
}

}  // namespace

double paired_t_power(double difference, double standard_deviation, int64_t pairs, double level) {
  if (!std::isfinite(difference)) fail_input("power: the difference is not finite");
  if (!(standard_deviation > 0 && std::isfinite(standard_deviation))) {
    fail_input("power: standard deviation {} is not above 0", standard_deviation);
  }
  if (pairs < 2) fail_input("power: {} pairs have no t test, which needs 2", pairs);
  if (!(level > 0 && level < 1)) fail_input("power: level {} is not in (0, 1)", level);
  const auto n = static_cast<double>(pairs);
  const double degrees = n - 1, noncentrality = std::abs(difference) / standard_deviation * std::sqrt(n);
  const double threshold = -student_t_quantile(level / 2, degrees);
  // Given that the sample's spread is s times the true one, t is beyond the threshold where a normal variable around the
  // noncentrality is beyond threshold * s.
  const auto integrand = [&](double s) {
    return (normal_cdf(noncentrality - threshold * s) + normal_cdf(-noncentrality - threshold * s)) *
           deviation_density(s, degrees);
  };
  // Beyond ten standard deviations of s nothing is left. Where the threshold is large the integrand falls within a
  // narrow stretch around noncentrality / threshold, which gets panels of its own.
  const double reach = 10 / std::sqrt(2 * degrees), least = std::max(0.0, 1 - reach), most = 1 + reach;
  double power = 0, low = least;
  for (double margin : {-8.0, 0.0, 8.0}) {
    const double high = std::clamp((noncentrality + margin) / threshold, low, most);
    if (high > low) power += simpson(integrand, low, high);
    low = high;
  }
  if (most > low) power += simpson(integrand, low, most);
  return std::clamp(power, 0.0, 1.0);
}

std::optional<int64_t> required_pairs(double difference, double standard_deviation, double power, double level) {
  if (!(power > 0 && power < 1)) fail_input("power: {} is not in (0, 1)", power);
  if (standard_deviation == 0) {
    if (difference == 0) return std::nullopt;
    return 2;
  }
  const auto enough = [&](int64_t pairs) {
    return paired_t_power(difference, standard_deviation, pairs, level) >= power;
  };
  int64_t high = 2;
  while (!enough(high)) {
    if (high >= kMostPairs) return std::nullopt;
    high *= 2;
  }
  int64_t low = high / 2;  // not enough, or 1
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace depthroute
