#include "study/power_plan.h"

#include <algorithm>
#include <cmath>

#include "io/format.h"
#include "io/text.h"
#include "study/power.h"
#include "study/report_analysis.h"

namespace depthroute {
namespace {

// The least p-value of n pairs by an exact test is 2^(1 - n).
int64_t least_pairs(const StudyProtocol& protocol) {
  int64_t pairs = kLeastPairs;
  if (protocol.decision.test == "t") return pairs;
  while (std::exp2(1.0 - static_cast<double>(pairs)) >= protocol.strictest_level()) ++pairs;
  return pairs;
}

double checked_difference(const StudyProtocol& protocol, const PowerOptions& options) {
  const double difference = options.difference.value_or(protocol.decision.minimal_difference);
  if (!std::isfinite(difference)) fail_input("plan: --difference is not finite");
  if (difference == 0) {
    fail_input("plan: {}; give --difference, in nats a token",
               options.difference ? "no number of seeds shows a difference of 0"
                                  : "the study's decision.minimal_difference is 0");
  }
  return std::abs(difference);
}

// The spread of one comparison's differences at the milestone that decides in the other study.
void measure(const StudyResults& measured, ComparisonPower* result) {
  for (const std::string& name : {result->comparison.variant, result->comparison.baseline}) {
    if (!measured.protocol.has_variant(name)) {
      result->reason = format_text("study {} has no variant {}", measured.protocol.name, name);
      return;
    }
  }
  const PairedResult pairs = compare_runs(measured, result->comparison, measured.protocol.decision.milestone);
  result->measured_pairs = pairs.statistics.pairs;
  result->standard_deviation = pairs.statistics.standard_deviation;
  if (!result->standard_deviation) {
    result->reason = format_text("study {} has {} of its pairs, and a spread takes two", measured.protocol.name,
                                 pairs.statistics.pairs);
  } else if (*result->standard_deviation == 0) {
    result->reason = format_text("the pairs in study {} do not scatter at all", measured.protocol.name);
  }
}

std::vector<std::string> remarks_on(const PowerPlan& plan, const StudyProtocol& protocol) {
  std::vector<std::string> remarks;
  const DecisionRule& rule = protocol.decision;
  std::string text = format_text("By the two-sided paired t test at level {:.4g}", plan.level);
  if (rule.holm)
    text += format_text(": {} by {} comparisons, Holm's first step", rule.level, protocol.comparisons.size());
  remarks.push_back(text + "; differences between seeds are taken to be normally distributed.");
  if (rule.test != "t") {
    remarks.push_back(format_text(
        "The rule's {} test has less power than the t test, and cannot decide with fewer than {} seeds.", rule.test,
        least_pairs(protocol)));
  }
  if (plan.difference <= rule.minimal_difference) {
    remarks.push_back(format_text(
        "The rule also asks for a measured difference of at least {}. A true one of that size is measured smaller "
        "half of "
        "the time, whatever the number of seeds: for a verdict in most cases plan for more seeds and a larger true "
        "difference, or a smaller decision.minimal_difference.",
        rule.minimal_difference));
  }
  for (const ComparisonPower& item : plan.comparisons) {
    if (item.measured_pairs < 2 || item.measured_pairs >= kLeastPairs) continue;
    remarks.push_back(format_text("The spread of {} against {} was measured on {} pairs and is hardly known.",
                                  item.comparison.variant, item.comparison.baseline, item.measured_pairs));
  }
  return remarks;
}

}  // namespace

std::optional<int64_t> seeds_needed(const StudyProtocol& protocol, double difference, double standard_deviation,
                                    double power) {
  const std::optional<int64_t> pairs =
      required_pairs(difference, standard_deviation, power, protocol.strictest_level());
  if (!pairs) return std::nullopt;
  return std::max(*pairs, least_pairs(protocol));
}

PowerPlan plan_power(const StudyProtocol& protocol, const PowerOptions& options) {
  if (options.standard_deviation.has_value() == !options.study_folder.empty()) {
    fail_input("plan: give either --power-from or --standard-deviation");
  }
  if (protocol.comparisons.empty()) fail_input("plan: the study compares nothing: it has no [[comparisons]]");
  PowerPlan plan{checked_difference(protocol, options), options.power, protocol.strictest_level(),
                 static_cast<int64_t>(protocol.seeds.size())};
  std::optional<StudyResults> measured;
  if (!options.study_folder.empty()) measured = read_study(options.study_folder);
  for (const Comparison& comparison : protocol.comparisons) {
    ComparisonPower item{comparison, options.standard_deviation};
    if (measured) measure(*measured, &item);
    if (item.reason.empty()) {
      const double deviation = *item.standard_deviation;
      item.seeds = seeds_needed(protocol, plan.difference, deviation, plan.power);
      if (!item.seeds) item.reason = "more than a thousand million seeds";
      if (plan.planned_seeds >= 2) {
        item.power_as_planned = paired_t_power(plan.difference, deviation, plan.planned_seeds, plan.level);
      }
    }
    plan.comparisons.push_back(std::move(item));
  }
  plan.remarks = remarks_on(plan, protocol);
  return plan;
}

Json power_plan_to_json(const PowerPlan& plan) {
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  Json json = json_object({{"difference", plan.difference},
                           {"power", plan.power},
                           {"level", plan.level},
                           {"planned_seeds", plan.planned_seeds},
                           {"comparisons", Json::array()},
                           {"remarks", plan.remarks}});
  for (const ComparisonPower& item : plan.comparisons) {
    json["comparisons"].push_back(json_object({{"variant", item.comparison.variant},
                                               {"baseline", item.comparison.baseline},
                                               {"standard_deviation", known(item.standard_deviation)},
                                               {"measured_pairs", item.measured_pairs},
                                               {"power_as_planned", known(item.power_as_planned)},
                                               {"seeds", known(item.seeds)},
                                               {"reason", item.reason}}));
  }
  return json;
}

std::string power_plan_text(const PowerPlan& plan) {
  std::string text =
      format_text("Seeds that show a difference of {} nats a token with power {}:\n", plan.difference, plan.power);
  for (const ComparisonPower& item : plan.comparisons) {
    text += format_text("  {} against {}: ", item.comparison.variant, item.comparison.baseline);
    if (!item.reason.empty()) {
      text += item.reason + "\n";
      continue;
    }
    text += format_text("{} seeds, for differences with a standard deviation of {:.4g}", *item.seeds,
                        *item.standard_deviation);
    if (item.measured_pairs > 0) text += format_text(" ({} pairs)", item.measured_pairs);
    if (item.power_as_planned) {
      text += format_text("; with the study's {} the t test has power {:.3f}", plan.planned_seeds,
                          *item.power_as_planned);
    }
    text += "\n";
  }
  for (const std::string& remark : plan.remarks) text += "  " + remark + "\n";
  return printable(std::move(text));
}

}  // namespace depthroute
