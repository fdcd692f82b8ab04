#include "study/report.h"

#include "io/format.h"
#include "study/charts.h"
#include "study/report_html.h"

namespace depthroute {
namespace {

std::string head(const StudyProtocol& protocol) {
  return format_text(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n"
      "<title>{} – depthroute study</title>\n<style>{}{}</style>\n</head>\n",
      escape_html(protocol.name), page_style(), chart_style());
}

std::string header(const StudyResults& results) {
  const StudyProtocol& protocol = results.protocol;
  return format_text("<header><p class=\"kicker\">depthroute study</p><h1>{}</h1>{}", escape_html(protocol.name),
                     paragraph(lead_text(protocol), "lead"));
}

}  // namespace

std::string render_report(const StudyResults& results) {
  struct Section {
    const char *id, *name;
    std::string html;
  };
  const StudyAnalysis analysis = analyse(results);
  const std::vector<Section> sections = {
      {"verdict", "Verdict", verdict_section(results, analysis)},
      {"milestones", "Milestones", milestone_section(results, analysis)},
      {"curves", "Loss curves", curve_section(results)},
      {"differences", "Paired differences", difference_section(results, analysis)},
      {"routes", "Depth routes", route_section(results)},
      {"divergence", "Route divergence", divergence_section(results)},
      {"costs", "Costs", cost_section(analysis)},
      {"runs", "Runs", run_section(results, analysis)},
      {"configuration", "Configuration", configuration_section(results)},
      {"glossary", "What the numbers mean", glossary_section()},
  };
  std::string html = head(results.protocol) +
                     "<body>\n<a class=\"skip\" href=\"#verdict\">Skip to the verdict</a>\n<div class=\"wrap\">\n";
  html += header(results) + "<nav aria-label=\"Sections\"><ul>";
  for (const Section& section : sections) {
    if (!section.html.empty()) html += format_text("<li><a href=\"#{}\">{}</a></li>", section.id, section.name);
  }
  html += "</ul></nav></header>\n<main>\n";
  for (const Section& section : sections) {
    if (!section.html.empty()) html += section_html(section.id, section.name, section.html);
  }
  return html + format_text("</main>\n<footer>Protocol hash <code>{}</code></footer>\n</div>\n</body>\n</html>\n",
                            escape_html(results.hash));
}

}  // namespace depthroute
