// Studies as they are found: unfinished, damaged, too small, or with nothing in them to find. Every form of the report is
// made, and says what is wrong.
#include <gtest/gtest.h>

#include <regex>

#include "study/power_plan.h"
#include "study/report.h"
#include "study/report_analysis.h"
#include "study/report_test_study.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;
using testing::kTotal;
using testing::TestStudy;

// Both sides of the first comparison get the same metrics.
void make_identical(const TestStudy& study, int64_t seeds) {
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    fs::copy_file(study.run("block_attnres", seed) / "metrics.jsonl",
                  study.run("rd_attnres", seed) / "metrics.jsonl", fs::copy_options::overwrite_existing);
  }
}

// What the run of seed 3 becomes.
void keep_events(const TestStudy& study, const std::function<bool(Json&)>& keep) {
  study.edit_metrics("rd_attnres", 3, keep);
}

struct Case {
  const char* name;
  int64_t seeds;
  std::function<void(const TestStudy&)> spoil;
  Outcome outcome;
  const char* said;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"identical", 5, [](const TestStudy& s) { make_identical(s, 5); }, Outcome::kNoDifference,
       "All paired losses are identical"},
      {"one seed", 1, [](const TestStudy&) {}, Outcome::kTooFewPairs, "One pair says nothing about significance"},
      {"two seeds", 2, [](const TestStudy&) {}, Outcome::kTooFewPairs, "2 pairs say nothing about significance"},
      {"two identical seeds", 2, [](const TestStudy& s) { make_identical(s, 2); }, Outcome::kTooFewPairs,
       "All paired losses are identical"},
      {"missing run", 5, [](const TestStudy& s) { fs::remove_all(s.run("rd_attnres", 3)); }, Outcome::kIncomplete,
       "not started"},
      {"failed run", 5,
       [](const TestStudy& s) {
         keep_events(s, [](Json& event) {
           if (event["event"] == "end")
             event["reason"] = "non_finite", event["message"] = "the loss of step 700 has overflowed";
           return event["event"] == "end" || event.value("step", 0) < 700;
         });
       },
       Outcome::kIncomplete, "the loss of step 700 has overflowed"},
      {"half-finished run", 5,
       [](const TestStudy& s) {
         keep_events(s, [](Json& event) { return event.contains("step") && event["step"] < 600; });
       },
       Outcome::kIncomplete, "running or killed"},
      {"non-finite loss", 5,
       [](const TestStudy& s) {
         keep_events(s, [](Json& event) {
           if (event["event"] == "validation" && event["tokens"] == kTotal) event["loss"] = nullptr;
           return true;
         });
       },
       Outcome::kIncomplete, "is not finite"},
      {"absent baseline", 5,
       [](const TestStudy& s) { s.edit_protocol([](Json& p) { p["comparisons"][0]["baseline"] = "muddformer"; }); },
       Outcome::kNotComparable, "a variant that this study does not train"},
      {"baseline never run", 5,
       [](const TestStudy& s) {
         for (int64_t seed = 1; seed <= 5; ++seed) fs::remove_all(s.run("block_attnres", seed));
       },
       Outcome::kIncomplete, "No pair of runs has a loss"},
      {"no time and no FLOPs", 5,
       [](const TestStudy& s) {
         for (int64_t seed = 1; seed <= 5; ++seed) {
           s.edit_metrics("rd_attnres", seed, [](Json& event) {
             event.erase("seconds"), event.erase("flops");
             return true;
           });
         }
       },
       Outcome::kBetter, "At equal training FLOPs nothing can be compared"},
      {"nothing", 5, [](const TestStudy& s) { fs::remove_all(s.path() / "runs"); }, Outcome::kIncomplete,
       "No run has a validation loss"},
  };
  return all;
}

bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

void expect_every_form_says_it(const Case& odd, const StudyResults& results) {
  const std::regex no_number("(^|[ ,|>(])-?(nan|inf)([ ,|<)]|$)", std::regex::icase);
  const std::string words = verdict_text(results), markdown = report_markdown(results), csv = report_csv(results);
  EXPECT_TRUE(has(words, odd.said)) << odd.name << ": " << words;
  EXPECT_TRUE(has(markdown, odd.said)) << odd.name;
  EXPECT_TRUE(has(render_report(results), odd.said)) << odd.name;
  for (const std::string& text : {words, markdown, csv}) {
    EXPECT_FALSE(std::regex_search(text, no_number)) << odd.name << ": " << text;
  }
  const Json json = Json::parse(dump_json(report_json(results)));
  EXPECT_EQ(json["comparisons"][0]["outcome"], outcome_name(odd.outcome)) << odd.name;
}

// What has no pair at equal tokens has none at equal time or FLOPs either.
void expect_no_pairs_from_nothing(const Case& odd, const StudyAnalysis& analysis) {
  for (const PairedResult& result : analysis.comparisons) {
    ASSERT_EQ(result.equal_time_pairs.size(), result.pairs.size());
    ASSERT_EQ(result.equal_flops_pairs.size(), result.pairs.size());
    for (size_t i = 0; i < result.pairs.size(); ++i) {
      if (result.pairs[i].reason.empty()) continue;
      EXPECT_FALSE(result.equal_time_pairs[i].reason.empty()) << odd.name;
      EXPECT_FALSE(result.equal_flops_pairs[i].reason.empty()) << odd.name;
    }
  }
}

// A number of seeds only where there are a spread and a difference; from plan a number or a reason, never both or neither.
void expect_seeds_or_a_reason(const Case& odd, const TestStudy& study, const StudyResults& results,
                              const StudyAnalysis& analysis) {
  const PairedResult result = compare_runs(results, results.protocol.comparisons[0], kTotal);
  const bool spread = result.statistics.standard_deviation.value_or(0) > 0 && result.statistics.mean != 0;
  EXPECT_EQ(analysis.verdicts[0].seeds_for_observed.has_value(), spread && odd.outcome != Outcome::kNotComparable)
      << odd.name;
  for (const ComparisonPower& item :
       plan_power(results.protocol, {.difference = 0.02, .study_folder = study.path().string()}).comparisons) {
    EXPECT_NE(item.seeds.has_value(), !item.reason.empty()) << odd.name;
  }
}

TEST(DamagedStudy, EveryReportIsMadeAndSaysWhatIsWrong) {
  for (const Case& odd : cases()) {
    const TestStudy study(odd.seeds);
    odd.spoil(study);
    const StudyResults results = read_study(study.path());
    const StudyAnalysis analysis = analyse(results);
    EXPECT_EQ(analysis.verdicts.at(0).outcome, odd.outcome) << odd.name;
    expect_every_form_says_it(odd, results);
    expect_no_pairs_from_nothing(odd, analysis);
    expect_seeds_or_a_reason(odd, study, results, analysis);
  }
}

}  // namespace
}  // namespace depthroute
