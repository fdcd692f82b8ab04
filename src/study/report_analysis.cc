#include "study/report_analysis.h"

#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "io/progress.h"

namespace depthroute {
namespace {

std::string tokens_text(int64_t tokens) {
  return format_count(static_cast<double>(tokens)) + " tokens";
}

bool is_variant(const StudyProtocol& protocol, const std::string& name) {
  return std::ranges::find(protocol.variants, name) != protocol.variants.end();
}

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

PairedResult compare(const StudyResults& results, const Comparison& comparison, int64_t milestone) {
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

std::optional<double> rule_p_value(const PairedStatistics& statistics, const DecisionRule& rule) {
  if (rule.test == "sign") return statistics.sign_test;
  return rule.test == "permutation" ? statistics.sign_flip_test : statistics.t_test;
}

// What is known before any test: kNoDifference where the test may be applied.
Outcome testable(const PairedResult& result, const StudyProtocol& protocol) {
  if (!is_variant(protocol, result.comparison.variant) || !is_variant(protocol, result.comparison.baseline)) {
    return Outcome::kNotComparable;
  }
  // Deciding on the pairs that happen to be there would let a diverged or slow run drop out of the comparison
  // unseen.
  if (result.statistics.pairs < static_cast<int64_t>(protocol.seeds.size())) return Outcome::kIncomplete;
  return result.statistics.pairs < kLeastPairs ? Outcome::kTooFewPairs : Outcome::kNoDifference;
}

// Applies the rule to all comparisons at once, since a correction needs them all: those that cannot be tested yet count
// with p = 1, so that finishing them never takes back what is shown.
void decide(const std::vector<const PairedResult*>& results, const StudyProtocol& protocol,
            std::vector<Verdict>* verdicts) {
  std::vector<double> p_values(results.size(), 1.0);
  for (size_t i = 0; i < results.size(); ++i) {
    Verdict& verdict = (*verdicts)[i];
    verdict.outcome = testable(*results[i], protocol);
    if (verdict.outcome != Outcome::kNoDifference) continue;
    verdict.p_value = rule_p_value(results[i]->statistics, protocol.decision);
    p_values[i] = *verdict.p_value;
  }
  if (protocol.decision.holm) p_values = holm_adjusted(p_values);
  for (size_t i = 0; i < results.size(); ++i) {
    Verdict& verdict = (*verdicts)[i];
    if (!verdict.p_value) continue;
    verdict.corrected_p_value = p_values[i];
    const double difference = *results[i]->statistics.mean;
    const bool shown = p_values[i] < protocol.decision.level && difference != 0 &&
                       std::abs(difference) >= protocol.decision.minimal_difference;
    if (shown) verdict.outcome = difference < 0 ? Outcome::kBetter : Outcome::kWorse;
  }
}

std::string headline(const Verdict& verdict, const PairedResult& result) {
  const std::string& variant = verdict.comparison.variant;
  const std::string& baseline = verdict.comparison.baseline;
  const size_t seeds = result.pairs.size();
  switch (verdict.outcome) {
    case Outcome::kBetter:
      return format_text("{} is better than {}", variant, baseline);
    case Outcome::kWorse:
      return format_text("{} is worse than {}", variant, baseline);
    case Outcome::kNoDifference:
      return format_text("No difference shown between {} and {}", variant, baseline);
    case Outcome::kTooFewPairs:
      return format_text("{} against {}: {} cannot decide", variant, baseline,
                         seeds == 1 ? "one seed" : format_text("{} seeds", seeds));
    case Outcome::kIncomplete:
      return format_text("{} against {}: undecided, {} of {} pairs complete", variant, baseline,
                         result.statistics.pairs, seeds);
    case Outcome::kNotComparable:
      break;
  }
  return format_text("{} against {}: cannot be compared", variant, baseline);
}

std::string figures_sentence(const PairedResult& result) {
  const PairedStatistics& s = result.statistics;
  std::string text =
      format_text("After {} the mean paired difference is {} nats a token over {} pair{}",
                  tokens_text(result.milestone), signed_number(s.mean), s.pairs, s.pairs == 1 ? "" : "s");
  text += s.t_interval ? format_text(" (95 % t interval {}).", interval_text(s.t_interval))
                       : std::string("; one pair has no interval.");
  text += format_text(" The variant's loss is lower in {} of {}{}, its perplexity {} times the baseline's.", s.wins,
                      s.pairs, s.ties ? format_text(" ({} tied)", s.ties) : "", fixed_number(s.perplexity_ratio));
  return text;
}

std::string equal_time_sentence(const PairedResult& result) {
  const PairedStatistics& s = result.equal_time;
  if (s.pairs == 0) return {};
  std::string text = format_text("At equal training time the mean difference is {}", signed_number(s.mean));
  if (s.t_interval) text += format_text(" ({})", interval_text(s.t_interval));
  return text + format_text(", lower in {} of {} pairs.", s.wins, s.pairs);
}

std::string rule_sentence(const Verdict& verdict, const DecisionRule& rule, size_t comparisons) {
  const std::string test = rule.test == "t"      ? "paired t test"
                           : rule.test == "sign" ? "sign test"
                                                 : "paired permutation test";
  std::string text = format_text("Rule fixed before the first result: two-sided {} below {}", test, rule.level);
  if (rule.minimal_difference > 0) text += format_text(" and a difference of at least {}", rule.minimal_difference);
  if (rule.holm) text += format_text(", corrected for {} comparisons by Holm's procedure", comparisons);
  text += format_text("; here p is {}", p_value_text(verdict.p_value));
  return text + (rule.holm ? format_text(", corrected {}.", p_value_text(verdict.corrected_p_value)) : ".");
}

// What the number of pairs forbids to conclude.
std::string few_pairs_sentence(const PairedResult& result, const DecisionRule& rule) {
  const auto n = static_cast<int64_t>(result.pairs.size());
  const double least = std::exp2(1.0 - static_cast<double>(n));
  if (n == 1)
    return "One pair says nothing about significance: there is no spread to measure the difference against.";
  if (n < kLeastPairs) {
    return format_text(
        "{} pairs say nothing about significance: even {} wins of {} have p = {} by the two-sided sign test, and "
        "five of "
        "five only 0.0625. Run at least {} seeds.",
        n, n, n, least, kLeastPairs);
  }
  if (least < rule.level) return {};
  const std::string fact =
      format_text("With {} pairs the sign and permutation tests cannot fall below p = {}", n, least);
  return rule.test == "t"
             ? fact + ", so a verdict rests on the t test's assumption that differences are normally distributed."
             : fact + ": this rule cannot show a difference with so few.";
}

// Puts a decided verdict into words.
void explain(const PairedResult& result, const StudyProtocol& protocol, Verdict* decided) {
  Verdict& verdict = *decided;
  verdict.headline = headline(verdict, result);
  const auto add = [&](const std::string& sentence) {
    if (!sentence.empty()) verdict.sentences.push_back(sentence);
  };
  if (verdict.outcome == Outcome::kNotComparable) {
    add("The comparison names a variant that this study does not train.");
    return;
  }
  if (result.statistics.pairs > 0) {
    verdict.figures = figures_sentence(result);
    add(equal_time_sentence(result));
  } else {
    add(format_text("No pair of runs has a loss after {} yet.", tokens_text(result.milestone)));
  }
  const bool identical = result.statistics.ties == result.statistics.pairs && result.statistics.pairs > 0;
  if (identical) add("All paired losses are identical: the runs do not differ at all.");
  if (verdict.outcome == Outcome::kIncomplete) {
    add("The rule is applied once every pair of the protocol is there; until then the figures are interim ones.");
  } else if (verdict.outcome != Outcome::kTooFewPairs) {
    add(rule_sentence(verdict, protocol.decision, protocol.comparisons.size()));
  }
  const bool enough = result.pairs.size() >= kLeastPairs;
  if (verdict.outcome != Outcome::kIncomplete || !enough) add(few_pairs_sentence(result, protocol.decision));
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
    if (!is_variant(results.protocol, result.comparison.variant) ||
        !is_variant(results.protocol, result.comparison.baseline)) {
      continue;  // the verdict says so once
    }
    for (const SeedDifference& pair : result.pairs) {
      if (pair.reason.empty()) continue;
      notes.push_back(format_text("No pair {} against {} for seed {}: {}.", result.comparison.variant,
                                  result.comparison.baseline, pair.seed, pair.reason));
    }
  }
  note_mixture(results, &RunResult::machine, "machines", "their training times and rates are not comparable",
               notes);
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
      analysis.comparisons.push_back(compare(results, comparison, milestone));
    }
    analysis.verdicts.push_back({comparison});
  }
  std::vector<const PairedResult*> decisive;
  for (const PairedResult& result : analysis.comparisons) {
    if (result.milestone == protocol.decision.milestone) decisive.push_back(&result);
  }
  decide(decisive, protocol, &analysis.verdicts);
  for (size_t i = 0; i < decisive.size(); ++i) explain(*decisive[i], protocol, &analysis.verdicts[i]);
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
