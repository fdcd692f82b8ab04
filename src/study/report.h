// The report of a study, in every form from one analysis (report_analysis.h). All are pure functions of the
// results: the same study gives the same bytes.
#pragma once
#include <string>

#include "study/results.h"

namespace depthroute {

// One self-contained HTML file: no network, no script; charts are inline SVG.
std::string render_report(const StudyResults& results);

// Everything the report's tables hold, at full precision; a number that is not known is null.
Json report_json(const StudyResults& results);

// One table, told apart by its first column: run (one a run and milestone), mean (one a variant and milestone),
// pair (one a seed, comparison and milestone) and comparison (one a comparison and milestone). A cell that does not
// apply or is not known is empty.
std::string report_csv(const StudyResults& results);

// A summary in GitHub's Markdown: verdicts, the tables of every milestone, costs, notes and the hash.
std::string report_markdown(const StudyResults& results);

// A few plain lines for a terminal.
std::string verdict_text(const StudyResults& results);

}  // namespace depthroute
