// Loss curves against tokens and against training time, and the paired differences.
#include <cmath>
#include <map>

#include "io/format.h"
#include "study/charts.h"
#include "study/report_html.h"

namespace depthroute {
namespace {

struct CurvePoint {
  int64_t tokens = 0;
  double seconds = kNotANumber, loss = kNotANumber;
  std::optional<double> spread{};
  bool milestone = false;
  size_t runs = 0;
};

bool has_curve(const RunResult& run, const std::string& variant) {
  return run.variant == variant && run.usable() && !run.validation.empty();
}

// The runs a mean curve is made of: the finished ones, or those there are while none is. A run that ended early
// would make the mean jump where it drops out.
std::vector<const RunResult*> curve_runs(const StudyResults& results, const std::string& variant) {
  std::vector<const RunResult*> finished, all;
  for (const RunResult& run : results.runs) {
    if (!has_curve(run, variant)) continue;
    all.push_back(&run);
    if (run.state == RunState::kFinished) finished.push_back(&run);
  }
  return finished.empty() ? all : finished;
}

// At the tokens where every one of these runs has a finite loss.
std::vector<CurvePoint> mean_curve(const StudyResults& results, const std::string& variant) {
  const std::vector<const RunResult*> runs = curve_runs(results, variant);
  struct Sample {
    std::vector<double> losses{}, seconds{};
    bool milestone = false;
  };
  std::map<int64_t, Sample> by_tokens;
  for (const RunResult* run : runs) {
    for (const ValidationPoint& point : run->validation) {
      if (!std::isfinite(point.loss)) continue;
      Sample& sample = by_tokens[point.tokens];
      sample.losses.push_back(point.loss);
      sample.seconds.push_back(point.seconds);
      sample.milestone |= point.milestone;
    }
  }
  std::vector<CurvePoint> curve;
  for (const auto& [tokens, sample] : by_tokens) {
    if (sample.losses.size() != runs.size()) continue;
    curve.push_back({tokens, mean(sample.seconds), mean(sample.losses), standard_deviation(sample.losses),
                     sample.milestone, runs.size()});
  }
  return curve;
}

std::vector<ChartLine> curve_lines(const StudyResults& results, bool against_time) {
  std::vector<ChartLine> lines;
  int style = 0;
  for (const std::string& variant : results.protocol.variants) {
    ChartLine line{variant, style};
    for (const CurvePoint& point : mean_curve(results, variant)) {
      line.points.push_back(
          {against_time ? point.seconds : static_cast<double>(point.tokens), point.loss, point.milestone});
    }
    for (const RunResult& run : results.runs) {
      if (!has_curve(run, variant)) continue;
      ChartLine seed{format_text("{}, seed {}", variant, run.seed), style, true};
      for (const ValidationPoint& point : run.validation) {
        seed.points.push_back({against_time ? point.seconds : static_cast<double>(point.tokens), point.loss});
      }
      lines.push_back(std::move(seed));
    }
    lines.push_back(std::move(line));
    ++style;
  }
  return lines;
}

bool drawable(const std::vector<ChartLine>& lines) {
  for (const ChartLine& line : lines) {
    for (const ChartPoint& point : line.points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) return true;
    }
  }
  return false;
}

// The ends of the mean curves in words, for the chart's description.
std::string curve_description(const StudyResults& results) {
  std::string text = "Validation loss of each variant.";
  for (const std::string& variant : results.protocol.variants) {
    const std::vector<CurvePoint> curve = mean_curve(results, variant);
    if (curve.empty()) continue;
    text += format_text(" {} ends at {} after {} tokens.", variant, fixed_number(curve.back().loss),
                        tokens_label(curve.back().tokens));
  }
  return text;
}

std::string curve_table(const StudyResults& results) {
  Table table{"Mean validation loss over the seeds",
              {"variant", "tokens", "training seconds", "mean loss", "sd", "runs"}};
  for (const std::string& variant : results.protocol.variants) {
    for (const CurvePoint& point : mean_curve(results, variant)) {
      table.rows.push_back({variant, tokens_label(point.tokens), fixed_number(point.seconds, 1),
                            fixed_number(point.loss), fixed_number(point.spread), format_text("{}", point.runs)});
    }
  }
  return table_html(table);
}

DifferenceChart chart_of(const StudyAnalysis& analysis, const Comparison& comparison, size_t number,
                         const StudyProtocol& protocol) {
  const std::string name = comparison.variant + " − " + comparison.baseline;
  DifferenceChart chart{{format_text("difference-{}", number), name,
                         "Paired differences of the validation loss by milestone.", "tokens",
                         "difference, nats a token"}};
  for (size_t i = 0; i < protocol.milestones.size(); ++i) {
    const PairedResult& result = analysis.comparisons[number * protocol.milestones.size() + i];
    DifferenceGroup group{tokens_label(result.milestone)};
    for (const SeedDifference& pair : result.pairs) {
      if (pair.reason.empty()) group.values.push_back(pair.difference());
    }
    group.mean = result.statistics.mean;
    if (const auto& interval = result.statistics.t_interval) group.low = interval->low, group.high = interval->high;
    chart.text.description += format_text(" After {} tokens: mean {}, 95 % interval {}.", group.label,
                                          signed_number(group.mean), interval_text(result.statistics.t_interval));
    chart.groups.push_back(std::move(group));
  }
  return chart;
}

std::string difference_table(const StudyAnalysis& analysis, const StudyProtocol& protocol) {
  Table table{"Every pair (equal tokens, equal training time, equal FLOPs)",
              {"variant − baseline", "tokens", "seed", "variant loss", "baseline loss", "difference",
               "at equal time", "at equal FLOPs"}};
  for (const PairedResult& result : analysis.comparisons) {
    for (size_t i = 0; i < protocol.seeds.size(); ++i) {
      const SeedDifference &pair = result.pairs[i], &timed = result.equal_time_pairs[i],
                           &counted = result.equal_flops_pairs[i];
      table.rows.push_back({result.comparison.variant + " − " + result.comparison.baseline,
                            tokens_label(result.milestone), format_text("{}", pair.seed),
                            fixed_number(pair.variant_loss), fixed_number(pair.baseline_loss),
                            signed_number(pair.difference()), signed_number(timed.difference()),
                            signed_number(counted.difference())});
    }
  }
  return table_html(table);
}

}  // namespace

std::string curve_section(const StudyResults& results) {
  const std::vector<ChartLine> by_tokens = curve_lines(results, false), by_time = curve_lines(results, true);
  if (!drawable(by_tokens)) return paragraph("No run has been validated yet.");
  std::vector<std::pair<std::string, int>> series;
  for (const std::string& variant : results.protocol.variants)
    series.emplace_back(variant, static_cast<int>(series.size()));
  const std::string description = curve_description(results);
  constexpr double kFrom = 0.1;
  std::string html = chart_legend(series) + "<div class=\"pair\">";
  html += figure_html(line_chart({{"curve-tokens", "Validation loss against tokens", description, "tokens",
                                   "validation loss, nats"},
                                  by_tokens,
                                  kFrom}),
                      "At equal tokens. Bold: mean over the seeds; thin: single seeds; markers: milestones.");
  if (drawable(by_time)) {
    html += figure_html(line_chart({{"curve-time", "Validation loss against training time", description,
                                     "training seconds", "validation loss, nats"},
                                    by_time,
                                    kFrom}),
                        "At equal training time, evaluation not counted. A slower variant must win here too.");
  }
  return html + "</div>\n" +
         paragraph("The first tenth of the training is cut off above, so that the later differences can be seen.",
                   "soft") +
         details_html("The numbers behind the curves", curve_table(results));
}

std::string difference_section(const StudyResults& results, const StudyAnalysis& analysis) {
  const StudyProtocol& protocol = results.protocol;
  if (protocol.comparisons.empty()) return {};
  std::string html = paragraph(
      "Below the dashed zero line the variant is better. Rings are the pairs, one a seed; the diamond is their "
      "mean "
      "with its 95 % t interval, which ends in an arrow where it reaches beyond the chart.",
      "soft");
  html += "<div class=\"pair\">";
  for (size_t i = 0; i < protocol.comparisons.size(); ++i) {
    const Comparison& comparison = protocol.comparisons[i];
    const bool any = analysis.comparisons[i * protocol.milestones.size()].statistics.pairs > 0;
    const std::string name = comparison.variant + " − " + comparison.baseline;
    html += any ? figure_html(difference_chart(chart_of(analysis, comparison, i, protocol)), name)
                : paragraph(name + ": no pair of runs has reached the first milestone.");
  }
  return html + "</div>\n" +
         details_html("The numbers behind the differences", difference_table(analysis, protocol));
}

}  // namespace depthroute
