// The frozen rule applied, and what it yields in words.
#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "study/power_plan.h"
#include "study/report_analysis.h"

namespace depthroute {
namespace {

std::optional<double> rule_p_value(const PairedStatistics& statistics, const DecisionRule& rule) {
  if (rule.test == "sign") return statistics.sign_test;
  return rule.test == "permutation" ? statistics.sign_flip_test : statistics.t_test;
}

// What is known before any test: kNoDifference where the test may be applied.
Outcome testable(const PairedResult& result, const StudyProtocol& protocol) {
  if (!protocol.has_variant(result.comparison.variant) || !protocol.has_variant(result.comparison.baseline)) {
    return Outcome::kNotComparable;
  }
  // Deciding on the pairs that happen to be there would let a diverged or slow run drop out of the comparison
  // unseen.
  if (result.statistics.pairs < static_cast<int64_t>(protocol.seeds.size())) return Outcome::kIncomplete;
  return result.statistics.pairs < kLeastPairs ? Outcome::kTooFewPairs : Outcome::kNoDifference;
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

// `what` is "training time" or "training FLOPs"; says too where there is no value, and why.
std::string equal_sentence(const char* what, const PairedResult& result, const std::vector<SeedDifference>& pairs,
                           const PairedStatistics& s) {
  int64_t missing = 0;
  std::string reason;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs[i].reason.empty() || !result.pairs[i].reason.empty()) continue;
    if (++missing == 1) reason = format_text("seed {}, {}", pairs[i].seed, pairs[i].reason);
  }
  if (s.pairs == 0) return format_text("At equal {} nothing can be compared ({}).", what, reason);
  std::string text = format_text("At equal {} the mean difference is {}", what, signed_number(s.mean));
  if (s.t_interval) text += format_text(" ({})", interval_text(s.t_interval));
  text += format_text(", lower in {} of {} pairs", s.wins, s.pairs);
  if (missing == 0) return text + ".";
  return text + format_text("; {} of {} pairs have no value there ({}).", missing, result.statistics.pairs, reason);
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

std::optional<int64_t> seeds_for_observed(const PairedResult& result, const StudyProtocol& protocol) {
  const PairedStatistics& s = result.statistics;
  if (!s.standard_deviation || *s.standard_deviation == 0 || *s.mean == 0) return std::nullopt;
  return seeds_needed(protocol, *s.mean, *s.standard_deviation, kUsualPower);
}

std::string seeds_sentence(const Verdict& verdict, const PairedResult& result) {
  if (!verdict.seeds_for_observed) return {};
  const PairedStatistics& s = result.statistics;
  return format_text(
      "If {} were the true difference and {} the true standard deviation of the differences, a study would need {} "
      "seeds "
      "to show it with power {}.",
      signed_number(s.mean), fixed_number(s.standard_deviation), *verdict.seeds_for_observed, kUsualPower);
}

// In an A/A study every difference is chance.
std::string false_alarm_sentence(const PairedResult& result, const StudyProtocol& protocol) {
  const PairedStatistics& s = result.statistics;
  std::string text = format_text(
      "Both are {}, from the same tensors on the same data in another order: these differences mean nothing, and a "
      "verdict of better or worse is a false alarm. They are at most {} nats",
      protocol.calibration, fixed_number(s.largest));
  if (s.standard_deviation)
    text += format_text(", with a standard deviation of {}", fixed_number(s.standard_deviation));
  return text + ".";
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

}  // namespace

void decide_verdicts(const std::vector<const PairedResult*>& results, const StudyProtocol& protocol,
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

void explain_verdict(const PairedResult& result, const StudyProtocol& protocol, Verdict* decided) {
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
    add(equal_sentence("training time", result, result.equal_time_pairs, result.equal_time));
    add(equal_sentence("training FLOPs", result, result.equal_flops_pairs, result.equal_flops));
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
  if (!protocol.calibration.empty() && result.statistics.pairs > 0) add(false_alarm_sentence(result, protocol));
  verdict.seeds_for_observed = seeds_for_observed(result, protocol);
  add(seeds_sentence(verdict, result));
  const bool enough = result.pairs.size() >= kLeastPairs;
  if (verdict.outcome != Outcome::kIncomplete || !enough) add(few_pairs_sentence(result, protocol.decision));
}

}  // namespace depthroute
