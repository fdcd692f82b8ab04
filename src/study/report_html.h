// The building blocks of the report's page. Arguments named text are plain and escaped here; arguments named html
// are markup.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "study/report_analysis.h"
#include "study/report_tables.h"

namespace depthroute {

// A table that scrolls within itself where it is wider than the page.
std::string table_html(const Table& table);
std::string details_html(std::string_view summary_text, const std::string& html);
std::string paragraph(std::string_view text, std::string_view css_class = {});
std::string list_html(const std::vector<std::string>& texts);
// A section with a heading and an anchor.
std::string section_html(std::string_view id, std::string_view heading_text, const std::string& html);
std::string figure_html(const std::string& chart_html, std::string_view caption_text);

// The page's own style sheet, without the charts'.
std::string page_style();

// The page's sections, in their order.
std::string verdict_section(const StudyResults& results, const StudyAnalysis& analysis);
std::string milestone_section(const StudyResults& results, const StudyAnalysis& analysis);
std::string curve_section(const StudyResults& results);
std::string difference_section(const StudyResults& results, const StudyAnalysis& analysis);
std::string route_section(const StudyResults& results);
std::string divergence_section(const StudyResults& results);
std::string cost_section(const StudyAnalysis& analysis);
std::string run_section(const StudyResults& results, const StudyAnalysis& analysis);
std::string configuration_section(const StudyResults& results);
std::string glossary_section();

}  // namespace depthroute
