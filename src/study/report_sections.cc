// The sections made of words and tables: verdict, milestones, costs, runs, configuration, glossary.
#include <cmath>

#include "io/format.h"
#include "study/charts.h"
#include "study/report_html.h"

namespace depthroute {
namespace {

struct Tone {
  const char *css_class, *sign;
};

// The sign says the outcome without the colour.
Tone tone_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBetter:
      return {"good", "▼"};
    case Outcome::kWorse:
      return {"bad", "▲"};
    case Outcome::kNoDifference:
      return {"flat", "="};
    default:
      return {"wait", "?"};
  }
}

std::string fact(std::string_view name, const std::string& value) {
  return format_text("<div><dt>{}</dt><dd>{}</dd></div>", escape_html(name), escape_html(value));
}

std::string verdict_card(const Verdict& verdict, const PairedResult& result) {
  const Tone tone = tone_of(verdict.outcome);
  const PairedStatistics& s = result.statistics;
  std::string html = format_text(
      "<article class=\"verdict {}\"><span class=\"badge\"><span aria-hidden=\"true\">{}</span> "
      "{}</span><h3>{}</h3>",
      tone.css_class, tone.sign, outcome_name(verdict.outcome), escape_html(verdict.headline));
  if (s.pairs > 0) {
    html += "<dl class=\"facts\">" + fact("mean difference, nats", signed_number(s.mean));
    html += fact("95 % t interval", s.t_interval ? interval_text(s.t_interval) : "none: one pair");
    html += fact("lower loss in", format_text("{} of {} pairs", s.wins, s.pairs));
    html += fact("perplexity", format_text("× {}", fixed_number(s.perplexity_ratio))) + "</dl>";
  }
  for (const std::string& sentence : verdict.sentences) html += paragraph(sentence);
  return html + "</article>\n";
}

const PairedResult& at_decision(const StudyAnalysis& analysis, size_t comparison, const StudyProtocol& protocol) {
  size_t i = comparison * protocol.milestones.size();
  while (analysis.comparisons[i].milestone != protocol.decision.milestone) ++i;
  return analysis.comparisons[i];
}

std::string test_split(const StudyResults& results) {
  Table means{"Test split, measured once at the end, over the seeds",
              {"variant", "runs", "mean loss", "sd", "perplexity"}};
  Table runs{"Test split of every run", {"variant", "seed", "loss", "perplexity", "bits per byte"}};
  for (const std::string& variant : results.protocol.variants) {
    std::vector<double> losses;
    for (const RunResult& run : results.runs) {
      if (run.variant != variant || !run.usable() || !run.test) continue;
      if (std::isfinite(run.test->loss)) losses.push_back(run.test->loss);
      runs.rows.push_back({variant, format_text("{}", run.seed), fixed_number(run.test->loss),
                           fixed_number(run.test->perplexity, 3), fixed_number(run.test->bits_per_byte)});
    }
    if (losses.empty()) continue;
    means.rows.push_back({variant, format_text("{} of {}", losses.size(), results.protocol.seeds.size()),
                          fixed_number(mean(losses)), fixed_number(standard_deviation(losses)),
                          fixed_number(std::exp(mean(losses)), 3)});
  }
  if (runs.rows.empty()) return {};
  return "<h3>Test split</h3>\n" + table_html(means) +
         details_html("Every run on the test split", table_html(runs));
}

std::string tokens_reached(const RunResult& run) {
  if (!run.usable()) return "–";
  const int64_t trained = run.train.empty() ? 0 : run.train.back().tokens;
  const int64_t validated = run.validation.empty() ? 0 : run.validation.back().tokens;
  return tokens_label(std::max(trained, validated));
}

std::string dash_if_empty(const std::string& text) {
  return text.empty() ? "–" : text;
}

}  // namespace

std::string verdict_section(const StudyResults& results, const StudyAnalysis& analysis) {
  std::string html;
  if (analysis.verdicts.empty())
    html += paragraph("This study compares no variants: its protocol has no comparisons.");
  html += "<div class=\"cards\">\n";
  for (size_t i = 0; i < analysis.verdicts.size(); ++i) {
    html += verdict_card(analysis.verdicts[i], at_decision(analysis, i, results.protocol));
  }
  html += "</div>\n" + paragraph(analysis.order);
  if (analysis.notes.empty()) return html;
  return html + format_text("<p class=\"callout\">{} – <a href=\"#runs\">see Runs</a>.</p>\n",
                            analysis.notes.size() == 1
                                ? "One thing to keep in mind"
                                : format_text("{} things to keep in mind", analysis.notes.size()));
}

std::string milestone_section(const StudyResults& results, const StudyAnalysis& analysis) {
  const StudyProtocol& protocol = results.protocol;
  std::string html = paragraph(
      "Loss is the mean negative log likelihood of a validation token in nats; perplexity is its exponential. "
      "Differences are taken "
      "within a seed, so what a seed does to both variants cancels.",
      "soft");
  for (int64_t milestone : protocol.milestones) {
    html += format_text("<h3>{} tokens{}</h3>\n", tokens_label(milestone),
                        milestone == protocol.decision.milestone ? " – decides" : "");
    html += table_html(loss_table(analysis, milestone, protocol));
    if (analysis.comparisons.empty()) continue;
    html += table_html(paired_table(analysis, milestone));
    html += details_html("More statistics, and the comparison at equal training time and FLOPs",
                         table_html(further_table(analysis, milestone)));
  }
  return html + test_split(results);
}

std::string cost_section(const StudyAnalysis& analysis) {
  return table_html(cost_table(analysis)) + paragraph(kCostNote, "soft");
}

std::string run_section(const StudyResults& results, const StudyAnalysis& analysis) {
  std::string html = analysis.notes.empty() ? paragraph("Every run of the protocol finished; nothing is missing.")
                                            : "<h3>To keep in mind</h3>\n" + list_html(analysis.notes);
  Table table{"Every run of the protocol",
              {"variant", "seed", "state", "tokens", "config hash", "data hash", "PyTorch", "depthroute", "threads",
               "machine"},
              {},
              10};
  for (const RunResult& run : results.runs) {
    table.rows.push_back({run.variant, format_text("{}", run.seed), run_state_name(run.state), tokens_reached(run),
                          dash_if_empty(run.config_hash), dash_if_empty(run.data_hash),
                          dash_if_empty(run.torch_version), dash_if_empty(run.depthroute_version),
                          run.threads ? format_text("{}", run.threads) : "–", dash_if_empty(run.machine)});
  }
  return html + details_html(format_text("All {} runs with their hashes", results.runs.size()), table_html(table));
}

std::string configuration_section(const StudyResults& results) {
  std::string html = paragraph(
      "The protocol was frozen under this hash before the first result; a run of another protocol is refused. "
      "The same protocol with the same data hash, on the same versions and number of threads, gives the same runs.",
      "soft");
  html += format_text("<p>Protocol hash <code>{}</code></p>\n", escape_html(results.hash));
  html += details_html(
      "Protocol", format_text("<pre tabindex=\"0\">{}</pre>", escape_html(dump_json(results.protocol_json, 2))));
  for (const std::string& variant : results.protocol.variants) {
    for (const RunResult& run : results.runs) {
      if (run.variant != variant || !run.usable() || run.config.empty()) continue;
      html += details_html(format_text("Configuration of {} (seed {})", variant, run.seed),
                           format_text("<pre tabindex=\"0\">{}</pre>", escape_html(dump_json(run.config, 2))));
      break;
    }
  }
  return html;
}

std::string glossary_section() {
  const std::pair<const char*, const char*> terms[] = {
      {"Loss, nats",
       "How surprised the model is by the next token, on average, as a natural logarithm. Lower is better. A "
       "difference of "
       "−0.03 means about 3 % lower perplexity."},
      {"Perplexity", "The exponential of the loss: as if the model chose evenly among that many tokens."},
      {"Bits per byte", "The loss in bits, spread over the bytes of the text; comparable between tokenizers."},
      {"Paired difference",
       "Variant minus baseline for one seed. Both start from the same tensors and see the same batches, so what "
       "remains "
       "is the variant and chance."},
      {"95 % t interval",
       "If the study were repeated many times, 95 % of such intervals would hold the true mean difference, "
       "provided the "
       "differences are roughly normal. An interval that includes zero shows no difference."},
      {"p-value",
       "How often chance alone would give a result at least this lopsided if the variants did not differ. The sign "
       "test counts wins "
       "only; the permutation test also uses sizes; the t test assumes a normal distribution."},
      {"Equal time",
       "The losses at the moment when the faster of the two reaches the milestone. The slower one's is "
       "interpolated linearly "
       "between its validations, which puts it slightly too high where they are far apart. A learning rate that "
       "has not yet decayed by then also counts against it. Nothing is extrapolated: where the validations do not "
       "reach, there is no value, and the report says so."},
      {"Equal FLOPs",
       "Likewise, when the one with fewer floating-point operations a token reaches the milestone. They are "
       "counted "
       "from the model, so that this does not depend on the machine or on how well a variant is implemented."},
      {"Depth route",
       "How a sublayer mixes the outputs of earlier blocks: one share a source, summing to one. Roles name what "
       "the mixture "
       "feeds, e.g. qk (queries and keys: where to look) and v (values: what to fetch)."},
      {"Jensen-Shannon divergence",
       "How far two such mixtures lie apart, in nats: 0 for equal ones, ln 2 = 0.693 at most."},
      {"sd", "Standard deviation over the seeds, with n − 1 in the denominator."},
  };
  std::string html = "<dl class=\"terms\">";
  for (const auto& [term, meaning] : terms)
    html += format_text("<dt>{}</dt><dd>{}</dd>", escape_html(term), escape_html(meaning));
  return html + "</dl>\n";
}

}  // namespace depthroute
