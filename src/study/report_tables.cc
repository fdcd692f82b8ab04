#include "study/report_tables.h"

#include <cmath>

#include "io/format.h"
#include "io/progress.h"

namespace depthroute {
namespace {

// "119.80 M (× 1.000)": the value and its ratio to the first variant's.
std::string relative(const std::string& text, double value, double first) {
  if (text == "–" || !(first > 0) || !std::isfinite(value)) return text;
  return format_text("{} (× {:.3f})", text, value / first);
}

std::string wins_text(const PairedStatistics& s) {
  return s.pairs ? format_text("{} of {}", s.wins, s.pairs) : "–";
}

}  // namespace

std::string lead_text(const StudyProtocol& protocol) {
  const auto plural = [](size_t count, const char* noun) {
    return format_text("{} {}{}", count, noun, count == 1 ? "" : "s");
  };
  if (!protocol.calibration.empty()) {
    return format_text(
        "An A/A study: {} twice a seed, from the same tensors on the same data in two orders. {}, {} tokens a run.",
        protocol.calibration, plural(protocol.seeds.size(), "seed"), tokens_label(protocol.total_tokens));
  }
  return format_text(
      "{}, {}, {} tokens a run. Every variant of a seed starts from the same tensors and sees the same batches.",
      plural(protocol.variants.size(), "variant"), plural(protocol.seeds.size(), "seed"),
      tokens_label(protocol.total_tokens));
}

Table loss_table(const StudyAnalysis& analysis, int64_t milestone, const StudyProtocol& protocol) {
  Table table{format_text("Validation after {} tokens, over the seeds", tokens_label(milestone)),
              {"variant", "runs", "mean loss", "sd", "perplexity", "bits per byte"}};
  for (const std::string& variant : protocol.variants) {
    const MilestoneSummary& s = analysis.summary(milestone, variant);
    table.rows.push_back({variant, format_text("{} of {}", s.losses.size(), protocol.seeds.size()),
                          fixed_number(s.mean_loss), fixed_number(s.standard_deviation),
                          fixed_number(s.perplexity, 3), fixed_number(s.bits_per_byte)});
  }
  return table;
}

Table paired_table(const StudyAnalysis& analysis, int64_t milestone) {
  Table table{"Paired differences, variant minus baseline (negative: the variant is better)",
              {"variant − baseline", "pairs", "mean", "95 % t interval", "sign p", "wins"}};
  for (const PairedResult& result : analysis.comparisons) {
    if (result.milestone != milestone) continue;
    const PairedStatistics& s = result.statistics;
    table.rows.push_back({result.comparison.variant + " − " + result.comparison.baseline,
                          format_text("{}", s.pairs), signed_number(s.mean), interval_text(s.t_interval),
                          p_value_text(s.sign_test), wins_text(s)});
  }
  return table;
}

Table further_table(const StudyAnalysis& analysis, int64_t milestone) {
  Table table{"The same pairs by other measures",
              {"variant − baseline", "sd of differences", "bootstrap 95 %", "t test p", "permutation p",
               "perplexity ratio", "effect in baseline sd", "at equal time", "its 95 % t interval", "its wins",
               "at equal FLOPs", "its 95 % t interval", "its wins"}};
  for (const PairedResult& result : analysis.comparisons) {
    if (result.milestone != milestone) continue;
    const PairedStatistics &s = result.statistics, &t = result.equal_time, &f = result.equal_flops;
    table.rows.push_back({result.comparison.variant + " − " + result.comparison.baseline,
                          fixed_number(s.standard_deviation), interval_text(s.bootstrap), p_value_text(s.t_test),
                          p_value_text(s.sign_flip_test), fixed_number(s.perplexity_ratio),
                          signed_number(s.effect, 2), signed_number(t.mean), interval_text(t.t_interval),
                          wins_text(t), signed_number(f.mean), interval_text(f.t_interval), wins_text(f)});
  }
  return table;
}

Table cost_table(const StudyAnalysis& analysis) {
  const VariantCost& first = analysis.costs.front();
  Table table{format_text("What each variant costs; in brackets relative to {}", first.variant),
              {"variant", "parameters", "without embedding", "FLOPs per token", "residual path per token",
               "tokens/s", "peak memory"}};
  for (const VariantCost& c : analysis.costs) {
    const auto parameters = static_cast<double>(c.parameters),
               non_embedding = static_cast<double>(c.non_embedding_parameters);
    table.rows.push_back(
        {c.variant, relative(count_text(parameters), parameters, static_cast<double>(first.parameters)),
         relative(count_text(non_embedding), non_embedding, static_cast<double>(first.non_embedding_parameters)),
         relative(count_text(c.flops_per_token), c.flops_per_token, first.flops_per_token),
         relative(bytes_text(c.residual_bytes_per_token), c.residual_bytes_per_token,
                  first.residual_bytes_per_token),
         relative(count_text(c.tokens_per_second), c.tokens_per_second, first.tokens_per_second),
         relative(bytes_text(c.peak_bytes), c.peak_bytes, first.peak_bytes)});
  }
  return table;
}

std::string count_text(double value) {
  return std::isfinite(value) && value > 0 ? format_count(value) : "–";
}

std::string bytes_text(double value) {
  if (!(std::isfinite(value) && value >= 0)) return "–";
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return format_text("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

std::string tokens_label(int64_t tokens) {
  return format_count(static_cast<double>(tokens));
}

}  // namespace depthroute
