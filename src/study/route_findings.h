// What the depth reads of a model have come to, in words: routes that have collapsed onto one source, reads that do not
// choose, sources that nothing reads, and QK and V routes that look at the same sources.
#pragma once
#include <string>
#include <vector>

#include "study/results.h"

namespace depthroute {

// A read of a single source has no choice and is passed over. The limits:
inline constexpr double kCollapsedShare = 0.95;  // mean share of one source, from here on: collapsed
inline constexpr double kSharpLargest = 0.95;    // mean largest weight of a token, from here on: one source a token
inline constexpr double kEvenEntropy = 0.99;     // of ln K, from here on: the sources are averaged, none is chosen
inline constexpr double kDeadShare = 0.1;        // of an even share 1/K, below it in every read: a dead source
inline constexpr double kAlikeDivergence = 0.01;  // nats, mean over the layers, below it: the routes look alike

// One sentence a finding; one that says that there are none; nothing for a model without depth reads.
std::vector<std::string> route_findings(const std::vector<DepthReadSummary>& reads,
                                        const std::vector<LayerDivergence>& divergence);

}  // namespace depthroute
