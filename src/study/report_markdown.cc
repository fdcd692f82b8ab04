// The report as Markdown (GitHub's), for a pull request or a notebook: verdicts, tables, notes and the hash.
#include "io/format.h"
#include "study/report.h"
#include "study/report_tables.h"

namespace depthroute {
namespace {

// Names come from files: none of them may end a cell, begin markup or add a line.
std::string escape_cell(const std::string& text) {
  constexpr std::string_view kMarks = "\\`*[]<>|&~";
  std::string escaped;
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (kMarks.find(c) != std::string_view::npos) escaped += '\\';
    escaped += control ? ' ' : c;
  }
  return escaped;
}

// At the start of a line a few more characters are markup.
std::string escape_markdown(const std::string& text) {
  const bool mark = !text.empty() && std::string_view("#+-=").find(text[0]) != std::string_view::npos;
  return (mark ? "\\" : "") + escape_cell(text);
}

std::string table_markdown(const Table& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& cell : cells) text += format_text(" {} |", escape_cell(cell));
    return text + "\n";
  };
  std::string text = format_text("{}:\n\n", escape_markdown(table.caption)) + line(table.header) + "|";
  for (size_t column = 0; column < table.header.size(); ++column) {
    text += column < table.text_columns ? " --- |" : " ---: |";
  }
  text += "\n";
  for (const std::vector<std::string>& row : table.rows) text += line(row);
  return text + "\n";
}

std::string list_markdown(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += format_text("- {}\n", escape_markdown(item));
  return text + "\n";
}

std::string verdict_markdown(const Verdict& verdict) {
  std::string text = format_text("### {}\n\n", escape_markdown(verdict.headline));
  if (!verdict.figures.empty()) text += format_text("{}\n\n", escape_markdown(verdict.figures));
  return verdict.sentences.empty() ? text : text + list_markdown(verdict.sentences);
}

}  // namespace

std::string report_markdown(const StudyResults& results) {
  const StudyAnalysis analysis = analyse(results);
  const StudyProtocol& protocol = results.protocol;
  std::string text = format_text("# {}\n\n{}\n\n## Verdict\n\n", escape_markdown(protocol.name),
                                 escape_markdown(lead_text(protocol)));
  if (analysis.verdicts.empty()) text += "This study compares no variants: its protocol has no comparisons.\n\n";
  for (const Verdict& verdict : analysis.verdicts) text += verdict_markdown(verdict);
  text += format_text("{}\n\n", escape_markdown(analysis.order));
  for (int64_t milestone : protocol.milestones) {
    text += format_text("## After {}{}\n\n", tokens_text(milestone),
                        milestone == protocol.decision.milestone ? " – decides" : "");
    text += table_markdown(loss_table(analysis, milestone, protocol));
    if (analysis.comparisons.empty()) continue;
    text += table_markdown(paired_table(analysis, milestone)) + table_markdown(further_table(analysis, milestone));
  }
  text += format_text("## Costs\n\n{}{}\n\n## Notes\n\n", table_markdown(cost_table(analysis)), kCostNote);
  text += analysis.notes.empty() ? "Every run of the protocol finished; nothing is missing.\n\n"
                                 : list_markdown(analysis.notes);
  return text + format_text("Protocol hash `{}`\n", results.hash);
}

}  // namespace depthroute
