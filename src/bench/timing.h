// Times that are compared with each other: taken in rounds, so that a disturbance of the machine hits all alike.
#pragma once
#include <functional>
#include <vector>

#include "io/json.h"

namespace depthroute {

struct Spread {
  double median = 0, least = 0, most = 0;
};

// Of at least one value.
Spread spread_of(std::vector<double> values);
Json spread_to_json(const Spread& spread);

// Seconds that the call takes.
double seconds_of(const std::function<void()>& call);

}  // namespace depthroute
