#include "bench/timing.h"

#include <algorithm>
#include <chrono>

namespace depthroute {

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t n = values.size();
  return {.median = (values[(n - 1) / 2] + values[n / 2]) / 2, .least = values.front(), .most = values.back()};
}

Json spread_to_json(const Spread& spread) {
  return json_object({{"median", spread.median}, {"least", spread.least}, {"most", spread.most}});
}

double seconds_of(const std::function<void()>& call) {
  auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace depthroute
