#include <cmath>

#include "io/format.h"
#include "io/text.h"
#include "study/report.h"
#include "study/report_analysis.h"

namespace depthroute {
namespace {

Json optional_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json interval_json(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return Json::array({interval->low, interval->high});
}

Json statistics_json(const PairedStatistics& s) {
  return {{"pairs", s.pairs},
          {"wins", s.wins},
          {"losses", s.losses},
          {"ties", s.ties},
          {"mean_difference", optional_json(s.mean)},
          {"standard_deviation", optional_json(s.standard_deviation)},
          {"largest_difference", optional_json(s.largest)},
          {"t_interval_95", interval_json(s.t_interval)},
          {"bootstrap_interval_95", interval_json(s.bootstrap)},
          {"t_test_p", optional_json(s.t_test)},
          {"sign_test_p", optional_json(s.sign_test)},
          {"permutation_test_p", optional_json(s.sign_flip_test)},
          {"perplexity_ratio", optional_json(s.perplexity_ratio)},
          {"effect_in_baseline_standard_deviations", optional_json(s.effect)}};
}

Json pairs_json(const std::vector<SeedDifference>& pairs) {
  Json list = Json::array();
  for (const SeedDifference& pair : pairs) {
    if (!pair.reason.empty()) {
      list.push_back({{"seed", pair.seed}, {"no_pair_because", pair.reason}});
      continue;
    }
    list.push_back({{"seed", pair.seed},
                    {"variant_loss", pair.variant_loss},
                    {"baseline_loss", pair.baseline_loss},
                    {"difference", pair.difference()}});
  }
  return list;
}

Json point_json(const ValidationPoint& point) {
  return {{"loss", optional_json(point.loss)},
          {"perplexity", optional_json(point.perplexity)},
          {"bits_per_byte", optional_json(point.bits_per_byte)}};
}

Json run_json(const RunResult& run, const StudyProtocol& protocol) {
  Json json = {
      {"variant", run.variant}, {"seed", run.seed}, {"state", run_state_name(run.state)}, {"message", run.message}};
  json["config_hash"] = run.config_hash;
  json["data_hash"] = run.data_hash;
  Json& milestones = json["milestones"] = Json::array();
  for (int64_t milestone : protocol.milestones) {
    const ValidationPoint* point = run.usable() ? milestone_point(run, milestone) : nullptr;
    if (!point) continue;
    Json entry = {{"milestone", milestone}, {"tokens", point->tokens}, {"step", point->step}};
    entry.update(point_json(*point));
    entry["seconds"] = optional_json(point->seconds);
    entry["flops"] = optional_json(point->flops);
    milestones.push_back(entry);
  }
  if (run.test) json["test"] = point_json(*run.test);
  return json;
}

Json comparison_json(const PairedResult& result) {
  return {{"milestone", result.milestone},
          {"equal_tokens", statistics_json(result.statistics)},
          {"pairs", pairs_json(result.pairs)},
          {"equal_time", statistics_json(result.equal_time)},
          {"equal_time_pairs", pairs_json(result.equal_time_pairs)},
          {"equal_flops", statistics_json(result.equal_flops)},
          {"equal_flops_pairs", pairs_json(result.equal_flops_pairs)}};
}

// RFC 4180.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? format_text("{}", *value) : std::string();
}

struct CsvRow {
  std::string row, variant{}, baseline{}, seed{};
  int64_t milestone = 0;
  int64_t count = 0;  // runs or pairs behind the row
  std::optional<double> loss{}, standard_deviation{}, perplexity{}, bits_per_byte{}, seconds{}, flops{},
      difference{};
  PairedStatistics statistics{};
  std::optional<double> equal_time_difference{}, equal_flops_difference{};
};

std::string csv_line(const CsvRow& r) {
  const PairedStatistics& s = r.statistics;
  const auto bound = [](const std::optional<Interval>& interval, double Interval::*end) {
    return interval ? csv_number((*interval).*end) : std::string();
  };
  const std::string wins = s.pairs ? format_text("{}", s.wins) : std::string();
  const std::string cells[] = {csv_cell(r.row),
                               format_text("{}", r.milestone),
                               csv_cell(r.variant),
                               csv_cell(r.baseline),
                               r.seed,
                               format_text("{}", r.count),
                               csv_number(r.loss),
                               csv_number(r.standard_deviation),
                               csv_number(r.perplexity),
                               csv_number(r.bits_per_byte),
                               csv_number(r.seconds),
                               csv_number(r.flops),
                               csv_number(r.difference),
                               bound(s.t_interval, &Interval::low),
                               bound(s.t_interval, &Interval::high),
                               csv_number(s.t_test),
                               csv_number(s.sign_test),
                               csv_number(s.sign_flip_test),
                               wins,
                               csv_number(s.perplexity_ratio),
                               csv_number(r.equal_time_difference),
                               csv_number(r.equal_flops_difference)};
  return format_text("{}\n", join_text(cells, ","));
}

std::string run_rows(const StudyResults& results) {
  std::string csv;
  for (const RunResult& run : results.runs) {
    for (int64_t milestone : results.protocol.milestones) {
      const ValidationPoint* point = run.usable() ? milestone_point(run, milestone) : nullptr;
      if (!point) continue;
      CsvRow row{"run", run.variant, "", format_text("{}", run.seed), milestone, 1};
      row.loss = point->loss, row.perplexity = point->perplexity, row.bits_per_byte = point->bits_per_byte;
      row.seconds = point->seconds, row.flops = point->flops;
      csv += csv_line(row);
    }
  }
  return csv;
}

std::string comparison_rows(const PairedResult& result) {
  std::string csv;
  const auto& [variant, baseline] = result.comparison;
  for (size_t i = 0; i < result.pairs.size(); ++i) {
    const SeedDifference& pair = result.pairs[i];
    if (!pair.reason.empty()) continue;
    CsvRow row{"pair", variant, baseline, format_text("{}", pair.seed), result.milestone, 1};
    row.loss = pair.variant_loss, row.difference = pair.difference();
    row.equal_time_difference = result.equal_time_pairs[i].difference();
    row.equal_flops_difference = result.equal_flops_pairs[i].difference();
    csv += csv_line(row);
  }
  CsvRow row{"comparison", variant, baseline, "", result.milestone, result.statistics.pairs};
  row.difference = result.statistics.mean, row.standard_deviation = result.statistics.standard_deviation;
  row.statistics = result.statistics;
  row.equal_time_difference = result.equal_time.mean, row.equal_flops_difference = result.equal_flops.mean;
  return csv + csv_line(row);
}

}  // namespace

Json report_json(const StudyResults& results) {
  const StudyAnalysis analysis = analyse(results);
  Json json = {{"format", "depthroute-report/1"},
               {"study", results.protocol.name},
               {"hash", results.hash},
               {"order", analysis.order}};
  Json& milestones = json["milestones"] = Json::array();
  for (const MilestoneSummary& s : analysis.summaries) {
    milestones.push_back({{"milestone", s.milestone},
                          {"variant", s.variant},
                          {"runs", s.losses.size()},
                          {"mean_loss", optional_json(s.mean_loss)},
                          {"standard_deviation", optional_json(s.standard_deviation)},
                          {"perplexity", optional_json(s.perplexity)},
                          {"bits_per_byte", optional_json(s.bits_per_byte)}});
  }
  Json& comparisons = json["comparisons"] = Json::array();
  for (const Verdict& verdict : analysis.verdicts)
    comparisons.push_back({{"variant", verdict.comparison.variant},
                           {"baseline", verdict.comparison.baseline},
                           {"outcome", outcome_name(verdict.outcome)},
                           {"rule_p", optional_json(verdict.p_value)},
                           {"rule_corrected_p", optional_json(verdict.corrected_p_value)},
                           {"seeds_for_observed_difference",
                            verdict.seeds_for_observed ? Json(*verdict.seeds_for_observed) : Json(nullptr)},
                           {"headline", verdict.headline},
                           {"figures", verdict.figures},
                           {"remarks", verdict.sentences},
                           {"milestones", Json::array()}});
  const size_t milestone_count = results.protocol.milestones.size();
  for (size_t i = 0; i < analysis.comparisons.size(); ++i) {
    comparisons[i / milestone_count]["milestones"].push_back(comparison_json(analysis.comparisons[i]));
  }
  Json& costs = json["costs"] = Json::array();
  for (const VariantCost& cost : analysis.costs) {
    costs.push_back({{"variant", cost.variant},
                     {"parameters", cost.parameters},
                     {"non_embedding_parameters", cost.non_embedding_parameters},
                     {"flops_per_token", optional_json(cost.flops_per_token)},
                     {"residual_bytes_per_token", optional_json(cost.residual_bytes_per_token)},
                     {"tokens_per_second", optional_json(cost.tokens_per_second)},
                     {"peak_bytes", optional_json(cost.peak_bytes)}});
  }
  Json& runs = json["runs"] = Json::array();
  for (const RunResult& run : results.runs) runs.push_back(run_json(run, results.protocol));
  if (results.calibration) {
    const Calibration& c = *results.calibration;
    json["calibration"] = json_object({{"study", c.study},
                                       {"hash", c.hash},
                                       {"variant", c.variant},
                                       {"milestone", c.milestone},
                                       {"standard_deviation", optional_json(c.standard_deviation)},
                                       {"largest_difference", optional_json(c.largest)},
                                       {"differences", c.differences}});
  }
  if (results.throughput) {
    Json variants = Json::array();
    for (const VariantThroughput& item : results.throughput->variants) {
      variants.push_back(json_object({{"variant", item.variant}, {"tokens_per_second", item.tokens_per_second}}));
    }
    json["throughput"] = json_object({{"machine", results.throughput->machine},
                                      {"threads", results.throughput->threads},
                                      {"variants", variants}});
  }
  json["notes"] = analysis.notes;
  json["protocol"] = results.protocol_json;
  return json;
}

std::string report_csv(const StudyResults& results) {
  const StudyAnalysis analysis = analyse(results);
  std::string csv =
      "row,milestone,variant,baseline,seed,count,loss,standard_deviation,perplexity,bits_per_byte,seconds,flops,"
      "difference,"
      "t_interval_low,t_interval_high,t_test_p,sign_test_p,permutation_test_p,wins,perplexity_ratio,"
      "equal_time_difference,equal_flops_difference\n";
  csv += run_rows(results);
  for (const MilestoneSummary& summary : analysis.summaries) {
    CsvRow row{"mean", summary.variant, "", "", summary.milestone, static_cast<int64_t>(summary.losses.size())};
    row.loss = summary.mean_loss, row.standard_deviation = summary.standard_deviation;
    row.perplexity = summary.perplexity, row.bits_per_byte = summary.bits_per_byte;
    csv += csv_line(row);
  }
  for (const PairedResult& result : analysis.comparisons) csv += comparison_rows(result);
  return csv;
}

std::string verdict_text(const StudyResults& results) {
  const StudyAnalysis analysis = analyse(results);
  std::string text = format_text("Study {} ({})\n", results.protocol.name, results.hash);
  for (const Verdict& verdict : analysis.verdicts) {
    text += format_text("\n{}.\n", verdict.headline);
    if (!verdict.figures.empty()) text += format_text("  {}\n", verdict.figures);
    for (const std::string& sentence : verdict.sentences) text += format_text("  {}\n", sentence);
  }
  text += format_text("\n{}\n", analysis.order);
  if (!analysis.notes.empty())
    text += format_text("{} note{}:\n", analysis.notes.size(), analysis.notes.size() == 1 ? "" : "s");
  for (const std::string& note : analysis.notes) text += format_text("  {}\n", note);
  return printable(std::move(text));
}

}  // namespace depthroute
