// The tables that the report's page and its Markdown summary share: words and numbers, without markup.
#pragma once
#include <string>
#include <vector>

#include "study/report_analysis.h"

namespace depthroute {

struct Table {
  std::string caption;
  std::vector<std::string> header{};
  std::vector<std::vector<std::string>> rows{};  // plain text
  size_t text_columns = 1;                       // left-aligned ones, the others are numbers
};

// "3 variants, 5 seeds, 4.10 M tokens a run. ..."
std::string lead_text(const StudyProtocol& protocol);
// Losses of each variant, and what each comparison gives, after a milestone's tokens.
Table loss_table(const StudyAnalysis& analysis, int64_t milestone, const StudyProtocol& protocol);
Table paired_table(const StudyAnalysis& analysis, int64_t milestone);
Table further_table(const StudyAnalysis& analysis, int64_t milestone);
Table cost_table(const StudyAnalysis& analysis);
inline constexpr const char* kCostNote =
    "FLOPs and bytes are counted from the model. Tokens per second are measured: all tokens of a run by its "
    "training seconds (evaluation not counted), mean over the runs; peak memory is the largest of the runs.";

// "119.80 M", "2.31 GiB", an en dash for what is unknown.
std::string count_text(double value);
std::string bytes_text(double value);
std::string tokens_label(int64_t tokens);

}  // namespace depthroute
