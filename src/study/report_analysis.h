// What a study says: the milestone table, the paired comparisons, the verdict of the decision rule, costs and
// cautions. Every output (HTML, JSON, CSV, terminal) is made from this one analysis, so they cannot disagree.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "study/results.h"
#include "study/statistics.h"

namespace depthroute {

// Fewer pairs than this decide nothing, whatever a test says: pairs of small studies scatter by more than the
// effect, and a t test on two or three of them stands on an assumed normal distribution alone.
inline constexpr int kLeastPairs = 5;

struct MilestoneSummary {
  int64_t milestone = 0;  // tokens
  std::string variant;
  std::vector<double> losses{};  // nats a token, of the runs that have a finite one, in the order of the seeds
  std::optional<double> mean_loss{}, standard_deviation{}, perplexity{},
      bits_per_byte{};  // perplexity = exp(mean_loss)
};

// One pair, or why there is none.
struct SeedDifference {
  int64_t seed = 0;
  double variant_loss = kNotANumber, baseline_loss = kNotANumber;
  std::string reason{};  // empty where the pair counts
  double difference() const { return variant_loss - baseline_loss; }
};

struct PairedResult {
  Comparison comparison;
  int64_t milestone = 0;
  // Both losses after the same number of tokens.
  std::vector<SeedDifference> pairs{};
  PairedStatistics statistics{};
  // Both losses after the same seconds of training: the time at which the faster of the two reaches the milestone;
  // the slower one's loss is interpolated linearly between its validations, and never extrapolated: what lies outside
  // of them has a reason instead.
  std::vector<SeedDifference> equal_time_pairs{};
  PairedStatistics equal_time{};
  // Likewise after the same floating-point operations of training, counted from the model.
  std::vector<SeedDifference> equal_flops_pairs{};
  PairedStatistics equal_flops{};
};

enum class Outcome { kBetter, kWorse, kNoDifference, kTooFewPairs, kIncomplete, kNotComparable };

struct Verdict {
  Comparison comparison;
  Outcome outcome = Outcome::kNotComparable;
  // The rule's p-value, alone and corrected for the comparisons of the study; absent where the rule is not applied.
  std::optional<double> p_value{}, corrected_p_value{};
  // Seeds that would show a true difference like the observed one with kUsualPower, for the observed spread (see
  // seeds_needed); absent where there is no difference, no spread, or no number of seeds.
  std::optional<int64_t> seeds_for_observed{};
  std::string headline{};                // "a is better than b"
  std::string figures{};                 // the figures it rests on, in one sentence
  std::vector<std::string> sentences{};  // equal time and FLOPs, rule, cautions
};

struct VariantCost {
  std::string variant;
  int64_t parameters = 0, non_embedding_parameters = 0;
  double flops_per_token = kNotANumber, residual_bytes_per_token = kNotANumber;
  double tokens_per_second = kNotANumber;  // mean over the runs, evaluation not counted
  double peak_bytes = kNotANumber;         // largest of the runs
};

struct StudyAnalysis {
  std::vector<MilestoneSummary> summaries;  // by milestone, then variant
  std::vector<PairedResult> comparisons;    // by comparison, then milestone
  std::vector<Verdict> verdicts;            // one a comparison
  std::string order;                        // the variants by mean loss at the decision's milestone
  std::vector<VariantCost> costs;           // one a variant; nothing known: zeros and NaN
  std::vector<std::string> notes;           // what is missing, failed or to be kept in mind

  const MilestoneSummary& summary(int64_t milestone, const std::string& variant) const;
};

StudyAnalysis analyse(const StudyResults& results);

// The pairs of one comparison at one milestone (tokens); what has no pair has a reason.
PairedResult compare_runs(const StudyResults& results, const Comparison& comparison, int64_t milestone);

// Applies the protocol's rule to all comparisons at once (results[i] at the rule's milestone, verdicts[i] its verdict),
// since a correction needs them all: those that cannot be tested yet count with p = 1, so that finishing them never
// takes back what is shown. Sets outcome and p-values.
void decide_verdicts(const std::vector<const PairedResult*>& results, const StudyProtocol& protocol,
                     std::vector<Verdict>* verdicts);
// Puts a decided verdict into words: headline, figures and sentences.
void explain_verdict(const PairedResult& result, const StudyProtocol& protocol, Verdict* decided);

// "better", "no difference shown", ...
std::string outcome_name(Outcome outcome);

// Numbers as they are read: a true minus sign, an en dash for what is unknown; "4.10 M tokens".
std::string tokens_text(int64_t tokens);
std::string signed_number(std::optional<double> value, int decimals = 4);
std::string fixed_number(std::optional<double> value, int decimals = 4);
std::string p_value_text(std::optional<double> p);
std::string interval_text(const std::optional<Interval>& interval);

}  // namespace depthroute
