// Pairs of runs: after the same tokens, the same seconds of training, and the same floating-point operations.
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

// What the runs are given alike: seconds or floating-point operations of training.
struct Axis {
  double ValidationPoint::*spent;
  const char* name;
};
constexpr Axis kTime{&ValidationPoint::seconds, "training time"}, kFlops{&ValidationPoint::flops, "FLOPs"};

// The loss where `spent` was reached, linearly between the validations around it. Nothing outside of them: a loss that
// was not bracketed by measured ones would be a guess.
std::optional<double> loss_after(const RunResult& run, const Axis& axis, double spent) {
  const ValidationPoint* before = nullptr;
  for (const ValidationPoint& point : run.validation) {
    const double here = point.*axis.spent;
    if (!std::isfinite(here) || !std::isfinite(point.loss)) continue;
    if (here == spent) return point.loss;
    if (here > spent) {
      if (!before) return std::nullopt;
      const double from = before->*axis.spent;
      return before->loss + (spent - from) / (here - from) * (point.loss - before->loss);
    }
    before = &point;
  }
  return std::nullopt;
}

// The pair where the cheaper of the two reaches the milestone.
SeedDifference pair_at_equal(const Axis& axis, const SeedDifference& pair, const RunResult* run,
                             const RunResult* baseline, const PairedResult& result) {
  if (!pair.reason.empty()) return pair;
  SeedDifference equal{pair.seed};
  const double spent = milestone_point(*run, result.milestone)->*axis.spent,
               baseline_spent = milestone_point(*baseline, result.milestone)->*axis.spent;
  if (!std::isfinite(spent) || !std::isfinite(baseline_spent)) {
    equal.reason = format_text("{}: no {} recorded at {}",
                               std::isfinite(spent) ? result.comparison.baseline : result.comparison.variant,
                               axis.name, tokens_text(result.milestone));
    return equal;
  }
  const double least = std::min(spent, baseline_spent);
  const std::optional<double> loss = loss_after(*run, axis, least),
                              baseline_loss = loss_after(*baseline, axis, least);
  if (!loss || !baseline_loss) {
    equal.reason =
        format_text("{}: not validated before the other reached the milestone, and nothing is extrapolated",
                    loss ? result.comparison.baseline : result.comparison.variant);
    return equal;
  }
  equal.variant_loss = *loss, equal.baseline_loss = *baseline_loss;
  return equal;
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
    result.equal_time_pairs.push_back(pair_at_equal(kTime, pair, run, baseline, result));
    result.equal_flops_pairs.push_back(pair_at_equal(kFlops, pair, run, baseline, result));
    result.pairs.push_back(std::move(pair));
  }
  result.statistics = statistics_of(result.pairs);
  result.equal_time = statistics_of(result.equal_time_pairs);
  result.equal_flops = statistics_of(result.equal_flops_pairs);
  return result;
}

}  // namespace depthroute
