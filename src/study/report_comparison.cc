// Pairs of runs: after the same tokens, and after the same seconds of training.
#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "study/report_analysis.h"

namespace depthroute {
namespace {

// Why a run has no loss at a milestone; empty where it has one.
std::string why_no_loss(const RunResult* run, const std::string& variant, int64_t milestone) {
  if (!run) return format_text("{} is not a variant of this study", variant);
  if (!run->usable()) return format_text("{}: run {}", variant, run_state_name(run->state));
  const ValidationPoint* point = milestone_point(*run, milestone);
  if (!point)
    return format_text("{}: not validated at {} (run {})", variant, tokens_text(milestone),
                       run_state_name(run->state));
  if (!std::isfinite(point->loss)) return format_text("{}: its loss is not finite", variant);
  return {};
}

std::string why_no_pair(const RunResult* run, const RunResult* baseline, const Comparison& comparison,
                        int64_t milestone) {
  if (std::string why = why_no_loss(run, comparison.variant, milestone); !why.empty()) return why;
  if (std::string why = why_no_loss(baseline, comparison.baseline, milestone); !why.empty()) return why;
  if (run->data_hash != baseline->data_hash) return "the two runs saw different data (data hashes differ)";
  if (milestone_point(*run, milestone)->tokens != milestone_point(*baseline, milestone)->tokens) {
    return "the two runs were validated after different numbers of tokens";
  }
  return {};
}

std::optional<double> loss_after(const RunResult& run, double seconds) {
  const ValidationPoint* before = nullptr;
  for (const ValidationPoint& point : run.validation) {
    if (!std::isfinite(point.seconds) || !std::isfinite(point.loss)) continue;
    if (point.seconds == seconds) return point.loss;
    if (point.seconds > seconds) {
      if (!before) return std::nullopt;
      const double share = (seconds - before->seconds) / (point.seconds - before->seconds);
      return before->loss + share * (point.loss - before->loss);
    }
    before = &point;
  }
  return std::nullopt;
}

SeedDifference equal_time_pair(const SeedDifference& pair, const RunResult* run, const RunResult* baseline,
                               int64_t milestone) {
  if (!pair.reason.empty()) return pair;
  SeedDifference result{pair.seed};
  const double seconds =
      std::min(milestone_point(*run, milestone)->seconds, milestone_point(*baseline, milestone)->seconds);
  const std::optional<double> loss = loss_after(*run, seconds), baseline_loss = loss_after(*baseline, seconds);
  if (!std::isfinite(seconds) || !loss || !baseline_loss) {
    result.reason = "no validation early enough, or no training time, to compare at equal time";
    return result;
  }
  result.variant_loss = *loss, result.baseline_loss = *baseline_loss;
  return result;
}

PairedStatistics statistics_of(const std::vector<SeedDifference>& pairs) {
  std::vector<double> values, baseline;
  for (const SeedDifference& pair : pairs) {
    if (!pair.reason.empty()) continue;
    values.push_back(pair.variant_loss);
    baseline.push_back(pair.baseline_loss);
  }
  return paired_statistics(values, baseline);
}

}  // namespace

PairedResult compare_runs(const StudyResults& results, const Comparison& comparison, int64_t milestone) {
  PairedResult result{comparison, milestone};
  for (int64_t seed : results.protocol.seeds) {
    const RunResult* run = results.find(comparison.variant, seed);
    const RunResult* baseline = results.find(comparison.baseline, seed);
    SeedDifference pair{seed};
    pair.reason = why_no_pair(run, baseline, comparison, milestone);
    if (pair.reason.empty()) {
      pair.variant_loss = milestone_point(*run, milestone)->loss;
      pair.baseline_loss = milestone_point(*baseline, milestone)->loss;
    }
    result.equal_time_pairs.push_back(equal_time_pair(pair, run, baseline, milestone));
    result.pairs.push_back(std::move(pair));
  }
  result.statistics = statistics_of(result.pairs);
  result.equal_time = statistics_of(result.equal_time_pairs);
  return result;
}

}  // namespace depthroute
