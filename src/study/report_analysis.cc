#include "study/report_analysis.h"

#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "io/progress.h"
#include "study/calibration.h"

namespace depthroute {
namespace {

MilestoneSummary summarise(const StudyResults& results, int64_t milestone, const std::string& variant) {
  MilestoneSummary summary{milestone, variant};
  std::vector<double> bits;
  for (const RunResult& run : results.runs) {
    if (run.variant != variant || !run.usable()) continue;
    const ValidationPoint* point = milestone_point(run, milestone);
    if (!point || !std::isfinite(point->loss)) continue;
    summary.losses.push_back(point->loss);
    if (std::isfinite(point->bits_per_byte)) bits.push_back(point->bits_per_byte);
  }
  if (summary.losses.empty()) return summary;
  summary.mean_loss = mean(summary.losses);
  summary.standard_deviation = standard_deviation(summary.losses);
  summary.perplexity = std::exp(*summary.mean_loss);
  if (bits.size() == summary.losses.size()) summary.bits_per_byte = mean(bits);
  return summary;
}

std::string order_sentence(const StudyAnalysis& analysis, const StudyProtocol& protocol) {
  std::vector<const MilestoneSummary*> order;
  for (const MilestoneSummary& summary : analysis.summaries) {
    if (summary.milestone == protocol.decision.milestone && summary.mean_loss) order.push_back(&summary);
  }
  const std::string at = tokens_text(protocol.decision.milestone);
  if (order.empty()) return format_text("No run has a validation loss after {} yet.", at);
  std::ranges::stable_sort(order, {}, [](const MilestoneSummary* summary) { return *summary->mean_loss; });
  std::string text = format_text("Mean validation loss after {}, lowest first: ", at);
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) text += *order[i]->mean_loss == *order[i - 1]->mean_loss ? " = " : " < ";
    text += format_text("{} {}", order[i]->variant, fixed_number(order[i]->mean_loss));
    if (order[i]->losses.size() < protocol.seeds.size()) {
      text += format_text(" ({} of {} runs)", order[i]->losses.size(), protocol.seeds.size());
    }
  }
  return text + ".";
}

VariantCost cost_of(const StudyResults& results, const std::string& variant) {
  VariantCost cost{variant};
  std::vector<double> rates;
  for (const RunResult& run : results.runs) {
    if (run.variant != variant || !run.usable()) continue;
    if (cost.parameters == 0) {
      cost.parameters = run.parameters;
      cost.non_embedding_parameters = run.non_embedding_parameters;
      cost.flops_per_token = run.flops_per_token;
      cost.residual_bytes_per_token = run.residual_bytes_per_token;
    }
    if (!run.train.empty() && run.train.back().seconds > 0) {
      rates.push_back(static_cast<double>(run.train.back().tokens) / run.train.back().seconds);
    }
    if (!(cost.peak_bytes >= run.peak_bytes)) cost.peak_bytes = run.peak_bytes;
  }
  cost.tokens_per_second = mean(rates);
  return cost;
}

void note_runs(const StudyResults& results, std::vector<std::string>& notes) {
  for (const RunResult& run : results.runs) {
    const std::string name = format_text("{}, seed {}", run.variant, run.seed);
    if (run.state != RunState::kFinished) {
      notes.push_back(format_text("{}: {}.", name, run.message));
      continue;
    }
    for (int64_t milestone : results.protocol.milestones) {
      const ValidationPoint* point = milestone_point(run, milestone);
      if (!point)
        notes.push_back(format_text("{}: finished, but has no validation at {}.", name, tokens_text(milestone)));
      if (point && !std::isfinite(point->loss)) {
        notes.push_back(format_text("{}: its validation loss at {} is not finite.", name, tokens_text(milestone)));
      }
    }
  }
}

// Something that should be one and the same in all runs: nothing said where it is.
void note_mixture(const StudyResults& results, std::string RunResult::*field, const char* what,
                  const char* consequence, std::vector<std::string>& notes) {
  std::vector<std::string> values;
  for (const RunResult& run : results.runs) {
    const std::string& value = run.*field;
    if (run.usable() && std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  if (values.size() < 2) return;
  notes.push_back(
      format_text("The runs come from {} {} ({}): {}.", values.size(), what, join_text(values, "; "), consequence));
}

std::vector<std::string> notes_on(const StudyResults& results, const StudyAnalysis& analysis) {
  std::vector<std::string> notes;
  note_runs(results, notes);
  for (const PairedResult& result : analysis.comparisons) {
    if (result.milestone != results.protocol.decision.milestone) continue;
    if (!results.protocol.has_variant(result.comparison.variant) ||
        !results.protocol.has_variant(result.comparison.baseline)) {
      continue;  // the verdict says so once
    }
    for (const SeedDifference& pair : result.pairs) {
      if (pair.reason.empty()) continue;
      notes.push_back(format_text("No pair {} against {} for seed {}: {}.", result.comparison.variant,
                                  result.comparison.baseline, pair.seed, pair.reason));
    }
  }
  if (results.throughput) {
    notes.push_back(format_text(
        "Training seconds and tokens/s are not those of the runs: every variant was measured in turn on one "
        "machine ({}, {} thread{}).",
        results.throughput->machine, results.throughput->threads, results.throughput->threads == 1 ? "" : "s"));
  } else {
    note_mixture(results, &RunResult::machine, "machines", "their training times and rates are not comparable",
                 notes);
  }
  note_mixture(results, &RunResult::torch_version, "PyTorch versions", "equal seeds need not give equal bits",
               notes);
  note_mixture(results, &RunResult::depthroute_version, "versions of depthroute",
               "equal seeds need not give equal bits", notes);
  return notes;
}

}  // namespace

const MilestoneSummary& StudyAnalysis::summary(int64_t milestone, const std::string& variant) const {
  for (const MilestoneSummary& summary : summaries) {
    if (summary.milestone == milestone && summary.variant == variant) return summary;
  }
  fail_run("no summary of {} at {} tokens", variant, milestone);
}

StudyAnalysis analyse(const StudyResults& results) {
  const StudyProtocol& protocol = results.protocol;
  StudyAnalysis analysis;
  for (int64_t milestone : protocol.milestones) {
    for (const std::string& variant : protocol.variants)
      analysis.summaries.push_back(summarise(results, milestone, variant));
  }
  for (const Comparison& comparison : protocol.comparisons) {
    for (int64_t milestone : protocol.milestones) {
      analysis.comparisons.push_back(compare_runs(results, comparison, milestone));
    }
    analysis.verdicts.push_back({comparison});
  }
  std::vector<const PairedResult*> decisive;
  for (const PairedResult& result : analysis.comparisons) {
    if (result.milestone == protocol.decision.milestone) decisive.push_back(&result);
  }
  decide_verdicts(decisive, protocol, &analysis.verdicts);
  for (size_t i = 0; i < decisive.size(); ++i) {
    explain_verdict(*decisive[i], protocol, &analysis.verdicts[i]);
    const bool beside = results.calibration && analysis.verdicts[i].outcome != Outcome::kNotComparable;
    if (beside) analysis.verdicts[i].sentences.push_back(calibration_sentence(*results.calibration, *decisive[i]));
  }
  for (const std::string& variant : protocol.variants) analysis.costs.push_back(cost_of(results, variant));
  analysis.order = order_sentence(analysis, protocol);
  analysis.notes = notes_on(results, analysis);
  return analysis;
}

std::string outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBetter:
      return "better";
    case Outcome::kWorse:
      return "worse";
    case Outcome::kNoDifference:
      return "no difference shown";
    case Outcome::kTooFewPairs:
      return "too few seeds";
    case Outcome::kIncomplete:
      return "undecided";
    case Outcome::kNotComparable:
      break;
  }
  return "not comparable";
}

std::string tokens_text(int64_t tokens) {
  return format_count(static_cast<double>(tokens)) + " tokens";
}

std::string fixed_number(std::optional<double> value, int decimals) {
  if (!value || !std::isfinite(*value)) return "–";
  // Six significant digits of a large number say as much as many decimals, and fit the table.
  if (std::abs(*value) >= 1e6) return format_text("{}{:.3g}", *value < 0 ? "−" : "", std::abs(*value));
  const std::string digits = format_text("{:.{}f}", std::abs(*value), decimals);
  const bool zero = digits.find_first_not_of("0.") == std::string::npos;
  return (*value < 0 && !zero ? "−" : "") + digits;
}

std::string signed_number(std::optional<double> value, int decimals) {
  const std::string text = fixed_number(value, decimals);
  const bool zero = text.find_first_not_of("0.") == std::string::npos;
  return value && *value > 0 && std::isfinite(*value) && !zero ? "+" + text : text;
}

std::string p_value_text(std::optional<double> p) {
  if (!p) return "–";
  return *p < 0.001 ? "below 0.001" : format_text("{:.3g}", *p);
}

std::string interval_text(const std::optional<Interval>& interval) {
  if (!interval) return "–";
  return signed_number(interval->low) + " to " + signed_number(interval->high);
}

}  // namespace depthroute
