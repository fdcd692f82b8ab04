#include "study/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "io/format.h"
#include "study/report_analysis.h"
#include "study/report_test_study.h"
#include "study/throughput.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;
using testing::edit_json;
using testing::final_loss;
using testing::kTotal;
using testing::kVariants;
using testing::loss_at;
using testing::TestStudy;

size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// The whole page: tags balanced, nothing loaded from elsewhere, no coordinate that is not a number, every id once.
void expect_sound_page(const std::string& html) {
  const std::regex tag("<(/?)([a-zA-Z0-9]+)[^<>]*?(/?)>");
  std::vector<std::string> open;
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    if (name == "meta" || (*it)[3].length() > 0) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << name;
    ASSERT_EQ(open.back(), name);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(occurrences(html, "http"), occurrences(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_FALSE(std::regex_search(html, std::regex("[ \"(,](-?nan|-?inf)[ \",)<]")));
  const std::regex id(" id=\"([^\"]+)\"");
  std::set<std::string> ids;
  for (std::sregex_iterator it(html.begin(), html.end(), id), end; it != end; ++it) {
    EXPECT_TRUE(ids.insert((*it)[1]).second) << (*it)[1];
  }
}

const Json& comparison_at(const Json& report, size_t comparison, int64_t milestone) {
  for (const Json& entry : report["comparisons"][comparison]["milestones"]) {
    if (entry["milestone"] == milestone) return entry;
  }
  throw std::out_of_range("milestone");
}

Outcome outcome_of(const TestStudy& study) {
  return analyse(read_study(study.path())).verdicts.at(0).outcome;
}

// Sets the final loss of both runs of a pair, so that the differences are exactly these.
void set_differences(const TestStudy& study, const std::vector<double>& differences) {
  for (size_t i = 0; i < differences.size(); ++i) {
    for (const char* variant : {"block_attnres", "rd_attnres"}) {
      const double loss = 3.0 + (variant[0] == 'r' ? differences[i] : 0.0);
      study.edit_metrics(variant, static_cast<int64_t>(i) + 1, [&](Json& event) {
        if (event["event"] == "validation" && event["tokens"] == kTotal) event["loss"] = loss;
        return true;
      });
    }
  }
}

TEST(ReportJson, NumbersAreThoseOfTheMetrics) {
  const TestStudy study(5);
  const Json report = report_json(read_study(study.path()));
  std::vector<double> differences;
  double sum = 0;
  for (int64_t seed = 1; seed <= 5; ++seed) {
    differences.push_back(loss_at("rd_attnres", seed, 1000) - loss_at("block_attnres", seed, 1000));
    sum += differences.back();
  }
  const Json& last = comparison_at(report, 0, kTotal);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(last["pairs"][i]["difference"], differences[i], 1e-12);
  EXPECT_NEAR(last["equal_tokens"]["mean_difference"], sum / 5, 1e-12);
  EXPECT_NEAR(last["equal_tokens"]["perplexity_ratio"], std::exp(sum / 5), 1e-12);
  EXPECT_EQ(last["equal_tokens"]["wins"], 5);
  EXPECT_NEAR(last["equal_tokens"]["sign_test_p"], 0.0625, 1e-12);
  EXPECT_EQ(report["comparisons"][0]["outcome"], "better");
  double mean_loss = 0;
  for (int64_t seed = 1; seed <= 5; ++seed) mean_loss += final_loss("standard", seed) + 5 * std::exp(-14.0);
  for (const Json& entry : report["milestones"]) {
    const bool wanted = entry["milestone"] == kTotal && entry["variant"] == "standard";
    if (wanted) {
      EXPECT_NEAR(entry["mean_loss"], mean_loss / 5, 1e-12);
    }
  }
  EXPECT_NEAR(report["costs"][0]["tokens_per_second"], 4096 / 0.40, 1e-6);
  EXPECT_EQ(report["costs"][2]["peak_bytes"], 901234567);
  EXPECT_TRUE(report["notes"].empty());
}

TEST(ReportJson, EqualTimeTakesTheSlowerRunsLossFromItsCurve) {
  const TestStudy study(1);
  const Json report = report_json(read_study(study.path()));
  // block_attnres finishes after 460 s; rd_attnres is then at step 460 / 0.47 = 978.7, between its validations at
  // 950 and 1000.
  const double share = (460 - 950 * 0.47) / (50 * 0.47);
  const double expected =
      loss_at("rd_attnres", 1, 950) + share * (loss_at("rd_attnres", 1, 1000) - loss_at("rd_attnres", 1, 950));
  const Json& pair = comparison_at(report, 0, kTotal)["equal_time_pairs"][0];
  EXPECT_NEAR(pair["variant_loss"], expected, 1e-9);
  EXPECT_NEAR(pair["baseline_loss"], loss_at("block_attnres", 1, 1000), 1e-12);
}

// {"study_hash": .., "machine": .., "threads": 2, "variants": ..} as bench step --study writes it.
fs::path write_throughput(const TestStudy& study, const std::string& hash, const Json& rates) {
  Json variants = Json::array();
  for (const auto& [variant, rate] : rates.items())
    variants.push_back({{"variant", variant}, {"tokens_per_second", rate}});
  write_json(study.path() / "speed.json",
             {{"study_hash", hash}, {"machine", "quiet machine"}, {"threads", 2}, {"variants", variants}});
  return study.path() / "speed.json";
}

TEST(Throughput, TakesThePlaceOfTheRunsSeconds) {
  const TestStudy study(1);
  StudyResults results = read_study(study.path());
  const fs::path path =
      write_throughput(study, results.hash,
                       {{"standard", 9000.0}, {"block_attnres", 8000.0}, {"rd_attnres", 4000.0}, {"other", 1.0}});
  apply_throughput(read_throughput(path, results), results);
  const Json report = report_json(results);
  // rd_attnres at half the speed has done half of its steps when block_attnres is done.
  const Json& pair = comparison_at(report, 0, kTotal)["equal_time_pairs"][0];
  EXPECT_NEAR(pair["variant_loss"], loss_at("rd_attnres", 1, 500), 1e-9);
  EXPECT_NEAR(pair["baseline_loss"], loss_at("block_attnres", 1, 1000), 1e-12);
  EXPECT_NEAR(report["costs"][0]["tokens_per_second"], 9000, 1e-6);
  EXPECT_NEAR(report["costs"][2]["tokens_per_second"], 4000, 1e-6);
  EXPECT_EQ(report["throughput"]["machine"], "quiet machine");
  ASSERT_EQ(report["notes"].size(), 1u);
  EXPECT_NE(report["notes"][0].get<std::string>().find("quiet machine, 2 threads"), std::string::npos);
  EXPECT_FALSE(report_json(read_study(study.path())).contains("throughput"));
}

TEST(Throughput, RefusesWhatIsNotOfTheStudy) {
  const TestStudy study(1);
  const StudyResults results = read_study(study.path());
  const Json rates = {{"standard", 9000.0}, {"block_attnres", 8000.0}, {"rd_attnres", 4000.0}};
  EXPECT_NO_THROW(read_throughput(write_throughput(study, results.hash, rates), results));
  EXPECT_THROW(read_throughput(write_throughput(study, "other", rates), results), InputError);
  for (const Json& bad : {Json(nullptr), Json(0.0), Json(-1.0), Json("fast")}) {
    Json damaged = rates;
    damaged["rd_attnres"] = bad;
    EXPECT_THROW(read_throughput(write_throughput(study, results.hash, damaged), results), InputError) << bad;
  }
  Json incomplete = rates;
  incomplete.erase("rd_attnres");
  EXPECT_THROW(read_throughput(write_throughput(study, results.hash, incomplete), results), InputError);
  write_file(study.path() / "speed.json", "[]");
  EXPECT_THROW(read_throughput(study.path() / "speed.json", results), InputError);
  EXPECT_THROW(read_throughput(study.path() / "absent.json", results), InputError);
}

TEST(ReportJson, EqualFlopsTakesTheCostlierRunsLossFromItsCurve) {
  const TestStudy study(1);
  const StudyResults results = read_study(study.path());
  const Json report = report_json(results);
  // block_attnres has spent 1.12e7 FLOPs a token after 1000 steps; rd_attnres has at step 1000 * 1.12 / 1.15 = 973.9.
  const double step = 1000 * 1.12 / 1.15, share = (step - 950) / 50;
  const double expected =
      loss_at("rd_attnres", 1, 950) + share * (loss_at("rd_attnres", 1, 1000) - loss_at("rd_attnres", 1, 950));
  const Json& entry = comparison_at(report, 0, kTotal);
  EXPECT_NEAR(entry["equal_flops_pairs"][0]["variant_loss"], expected, 1e-9);
  EXPECT_NEAR(entry["equal_flops_pairs"][0]["baseline_loss"], loss_at("block_attnres", 1, 1000), 1e-12);
  EXPECT_NEAR(entry["equal_flops"]["mean_difference"], expected - loss_at("block_attnres", 1, 1000), 1e-9);
  const std::string csv = report_csv(results);
  EXPECT_NE(csv.find(format_text(",{}\n", entry["equal_flops"]["mean_difference"].get<double>())),
            std::string::npos);
  EXPECT_NE(verdict_text(results).find("At equal training FLOPs the mean difference is"), std::string::npos);
}

TEST(EqualCost, NothingIsExtrapolatedAndTheReportSaysSo) {
  const TestStudy study(5);
  // Seed 1: only the last validation is left, so at the baseline's FLOPs nothing is known. Seed 2: no FLOPs at all.
  study.edit_metrics("rd_attnres", 1,
                     [](Json& event) { return event["event"] != "validation" || event["tokens"] == kTotal; });
  study.edit_metrics("rd_attnres", 2, [](Json& event) {
    if (event["event"] == "validation") event.erase("flops");
    return true;
  });
  const StudyResults results = read_study(study.path());
  const PairedResult result = compare_runs(results, {"rd_attnres", "block_attnres"}, kTotal);
  EXPECT_EQ(result.statistics.pairs, 5);
  EXPECT_EQ(result.equal_time.pairs, 4);
  EXPECT_EQ(result.equal_flops.pairs, 3);
  EXPECT_NE(result.equal_flops_pairs[0].reason.find("nothing is extrapolated"), std::string::npos);
  EXPECT_NE(result.equal_flops_pairs[1].reason.find("no FLOPs recorded"), std::string::npos);
  const std::string text = verdict_text(results);
  EXPECT_NE(text.find("1 of 5 pairs have no value there"), std::string::npos) << text;
  EXPECT_NE(text.find("2 of 5 pairs have no value there"), std::string::npos) << text;
  for (int64_t seed = 1; seed <= 5; ++seed) {
    study.edit_metrics("rd_attnres", seed, [](Json& event) {
      if (event["event"] == "validation") event["flops"] = nullptr;
      return true;
    });
  }
  EXPECT_NE(verdict_text(read_study(study.path())).find("At equal training FLOPs nothing can be compared"),
            std::string::npos);
  expect_sound_page(render_report(read_study(study.path())));
}

TEST(Verdict, FollowsTheRuleOfTheProtocol) {
  const TestStudy study(5);
  set_differences(study, {-0.03, -0.02, -0.04, -0.03, -0.02});
  EXPECT_EQ(outcome_of(study), Outcome::kBetter);
  study.edit_protocol([](Json& p) { p["decision"]["minimal_difference"] = 0.05; });
  EXPECT_EQ(outcome_of(study), Outcome::kNoDifference);
  study.edit_protocol([](Json& p) { p["decision"]["minimal_difference"] = 0.0, p["decision"]["test"] = "sign"; });
  EXPECT_EQ(outcome_of(study), Outcome::kNoDifference) << "five of five has p = 0.0625";
  study.edit_protocol([](Json& p) { p["decision"]["level"] = 0.1; });
  EXPECT_EQ(outcome_of(study), Outcome::kBetter);
  study.edit_protocol([](Json& p) { p["decision"]["test"] = "permutation"; });
  EXPECT_EQ(outcome_of(study), Outcome::kBetter);
  set_differences(study, {0.03, 0.02, 0.04, 0.03, 0.02});
  EXPECT_EQ(outcome_of(study), Outcome::kWorse);
  set_differences(study, {0.03, -0.02, 0.01, -0.03, 0.02});
  EXPECT_EQ(outcome_of(study), Outcome::kNoDifference);
  set_differences(study, {0, 0, 0, 0, 0});
  EXPECT_EQ(outcome_of(study), Outcome::kNoDifference);
  EXPECT_NE(verdict_text(read_study(study.path())).find("identical"), std::string::npos);
}

TEST(Verdict, CorrectsForTheNumberOfComparisons) {
  const TestStudy study(5);
  set_differences(study, {-0.03, -0.02, -0.04, -0.03, -0.001});
  const double p = *analyse(read_study(study.path())).verdicts[0].p_value;
  EXPECT_EQ(outcome_of(study), Outcome::kBetter);
  // The same comparison several times: Holm multiplies the least p by their number.
  const auto repeat = [&](int64_t times) {
    study.edit_protocol([&](Json& protocol) {
      Json first = protocol["comparisons"][0];
      protocol["comparisons"] = Json::array();
      for (int64_t i = 0; i < times; ++i) protocol["comparisons"].push_back(first);
    });
  };
  const auto most = static_cast<int64_t>(0.05 / p);
  ASSERT_GT(most, 1);
  repeat(most + 1);
  EXPECT_EQ(outcome_of(study), Outcome::kBetter) << "no correction";
  study.edit_protocol([](Json& protocol) { protocol["decision"]["correction"] = "holm"; });
  EXPECT_EQ(outcome_of(study), Outcome::kNoDifference);
  EXPECT_NEAR(*analyse(read_study(study.path())).verdicts[0].corrected_p_value, p * static_cast<double>(most + 1),
              1e-12);
  EXPECT_NE(verdict_text(read_study(study.path())).find("Holm"), std::string::npos);
  repeat(most);
  EXPECT_EQ(outcome_of(study), Outcome::kBetter);
}

TEST(Verdict, FewSeedsDecideNothing) {
  for (int64_t seeds : {1, 2, 3, 4}) {
    const TestStudy study(seeds);
    set_differences(study, std::vector<double>(seeds, -0.5));
    EXPECT_EQ(outcome_of(study), Outcome::kTooFewPairs) << seeds;
    expect_sound_page(render_report(read_study(study.path())));
  }
  const std::string two = verdict_text(read_study(TestStudy(2).path()));
  EXPECT_NE(two.find("say nothing about significance"), std::string::npos);
  EXPECT_NE(two.find("0.0625"), std::string::npos);
  EXPECT_NE(verdict_text(read_study(TestStudy(1).path())).find("one pair has no interval"), std::string::npos);
}

TEST(Verdict, OrdersTheVariantsByMeanLoss) {
  const std::string text = verdict_text(read_study(TestStudy(5).path()));
  EXPECT_TRUE(std::regex_search(
      text, std::regex("rd_attnres 3\\.\\d{4} < block_attnres 3\\.\\d{4} < standard 3\\.\\d{4}")));
}

TEST(Verdict, IsNotGivenWhileAPairIsMissing) {
  struct Case {
    std::function<void(const TestStudy&)> spoil;
    std::string note;
  };
  const std::vector<Case> cases = {
      {[](const TestStudy& s) { fs::remove_all(s.run("rd_attnres", 3)); }, "not started"},
      {[](const TestStudy& s) { fs::remove_all(s.run("block_attnres", 3)); }, "block_attnres: run missing"},
      {[](const TestStudy& s) {
         edit_json(s.run("rd_attnres", 3) / "run.json", [](Json& j) { j["study_hash"] = "other"; });
       },
       "refused: it belongs to the study with hash other"},
      {[](const TestStudy& s) {
         edit_json(s.run("rd_attnres", 3) / "run.json", [](Json& j) { j["data_hash"] = "other"; });
       },
       "saw different data"},
      {[](const TestStudy& s) {
         s.edit_metrics("rd_attnres", 3, [](Json& e) {
           if (e["event"] == "validation") e["loss"] = nullptr;
           return true;
         });
       },
       "is not finite"},
      {[](const TestStudy& s) {
         s.edit_metrics("rd_attnres", 3, [](Json& e) { return e["event"] == "train" && e["step"] < 400; });
       },
       "not validated"},
      {[](const TestStudy& s) { write_file(s.run("rd_attnres", 3) / "metrics.jsonl", "{]\n"); }, "damaged"},
  };
  for (const Case& odd : cases) {
    const TestStudy study(5);
    odd.spoil(study);
    const StudyResults results = read_study(study.path());
    const StudyAnalysis analysis = analyse(results);
    EXPECT_EQ(analysis.verdicts[0].outcome, Outcome::kIncomplete) << odd.note;
    EXPECT_EQ(analysis.comparisons[1].statistics.pairs, 4) << odd.note;
    EXPECT_NE(verdict_text(results).find(odd.note), std::string::npos) << odd.note;
    expect_sound_page(render_report(results));
  }
}

TEST(Verdict, ABaselineThatIsNotTrainedIsSaid) {
  const TestStudy study(5);
  study.edit_protocol([](Json& p) { p["comparisons"][0]["baseline"] = "muddformer"; });
  EXPECT_EQ(outcome_of(study), Outcome::kNotComparable);
  expect_sound_page(render_report(read_study(study.path())));
}

TEST(RenderReport, IsDeterministicAndSound) {
  const TestStudy study(5);
  const std::string html = render_report(read_study(study.path()));
  EXPECT_EQ(html, render_report(read_study(study.path())));
  expect_sound_page(html);
  EXPECT_NE(html.find("rd_attnres is better than block_attnres"), std::string::npos);
  // Two curves, two comparisons, two divergences; three maps for the parent, four for the split one, and the scale.
  EXPECT_EQ(occurrences(html, "<svg class=\"chart\""), 6u);
  EXPECT_EQ(occurrences(html, "<svg class=\"heat\""), 8u);
  EXPECT_EQ(report_csv(read_study(study.path())), report_csv(read_study(study.path())));
}

TEST(RenderReport, NothingMeasuredYet) {
  const TestStudy study(2);
  fs::remove_all(study.path() / "runs");
  const StudyResults results = read_study(study.path());
  expect_sound_page(render_report(results));
  EXPECT_NE(verdict_text(results).find("undecided, 0 of 2 pairs"), std::string::npos);
  EXPECT_NO_THROW(report_json(results).dump());
}

TEST(RenderReport, EscapesEveryNameFromTheFiles) {
  const std::string evil = "<img src=x onerror='a&b\"'>";
  const TestStudy study(2);
  study.edit_protocol([&](Json& p) {
    p["name"] = evil, p["variants"][0] = evil, p["comparisons"][1]["baseline"] = evil, p["unknown key"] = evil;
  });
  edit_json(study.run("rd_attnres", 1) / "run.json",
            [&](Json& run) { run["machine"] = evil, run["config"]["note"] = evil; });
  study.edit_metrics("rd_attnres", 2, [&](Json& event) {
    if (event["event"] == "end") event["reason"] = "stopped", event["message"] = evil;
    if (event["event"] == "diagnostics") event["reads"][0]["role"] = evil, event["reads"][0]["sources"][0] = evil;
    return true;
  });
  fs::remove_all(study.run("rd_attnres", 1) / "metrics.jsonl");
  const std::string html = render_report(read_study(study.path()));
  expect_sound_page(html);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_NE(html.find("&lt;img src=x onerror=&#39;a&amp;b&quot;&#39;&gt;"), std::string::npos);
}

TEST(ReportMarkdown, HasWhatTheAnalysisHasAndIsDeterministic) {
  const TestStudy study(5);
  const StudyResults results = read_study(study.path());
  const std::string text = report_markdown(results);
  EXPECT_EQ(text, report_markdown(read_study(study.path())));
  const StudyAnalysis analysis = analyse(results);
  for (const Verdict& verdict : analysis.verdicts) {
    for (const std::string& part : {verdict.headline, verdict.figures}) {
      EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    for (const std::string& sentence : verdict.sentences)
      EXPECT_NE(text.find(sentence), std::string::npos) << sentence;
  }
  for (const std::string& part : {fixed_number(analysis.summary(kTotal, "rd_attnres").mean_loss),
                                  signed_number(analysis.comparisons[0].statistics.mean), results.hash}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
  EXPECT_NE(text.find("nothing is missing"), std::string::npos);
  fs::remove_all(study.run("rd_attnres", 3));
  EXPECT_NE(report_markdown(read_study(study.path())).find("\n- rd_attnres, seed 3: not started"),
            std::string::npos);
}

TEST(ReportMarkdown, NoNameLeavesItsCell) {
  const TestStudy study(2);
  study.edit_protocol([](Json& p) {
    p["name"] = "a|b\n# c", p["variants"][0] = "x|<b>`y`", p["comparisons"][1]["baseline"] = "x|<b>`y`";
  });
  const std::string text = report_markdown(read_study(study.path()));
  EXPECT_EQ(text.find("# a\\|b # c\n"), 0u) << text.substr(0, 40);
  EXPECT_EQ(text.find("<b>"), std::string::npos);
  // Every line of a table has the bars of its header.
  std::istringstream lines(text);
  std::string line;
  std::ptrdiff_t bars = 0;
  while (std::getline(lines, line)) {
    if (!line.starts_with("|")) {
      bars = 0;
      continue;
    }
    const auto here = std::ranges::count(line, '|') - static_cast<std::ptrdiff_t>(occurrences(line, "\\|"));
    if (bars != 0) {
      EXPECT_EQ(here, bars) << line;
    }
    bars = here;
  }
}

TEST(VerdictText, SendsNoControlSequencesToTheTerminal) {
  const TestStudy study(1);
  study.edit_protocol([](Json& p) { p["name"] = "a\x1b[2Jb"; });
  EXPECT_EQ(verdict_text(read_study(study.path())).find('\x1b'), std::string::npos);
}

TEST(ReportCsv, EveryRowHasTheHeadersColumns) {
  const TestStudy study(2);
  const std::string csv = report_csv(read_study(study.path()));
  std::istringstream lines(csv);
  std::string line;
  std::map<std::string, int> rows;
  std::getline(lines, line);
  const auto commas = std::ranges::count(line, ',');
  while (std::getline(lines, line)) {
    EXPECT_EQ(std::ranges::count(line, ','), commas) << line;
    ++rows[line.substr(0, line.find(','))];
  }
  EXPECT_EQ(rows, (std::map<std::string, int>{{"run", 12}, {"mean", 6}, {"pair", 8}, {"comparison", 4}}));
  const double difference = loss_at("rd_attnres", 2, 1000) - loss_at("block_attnres", 2, 1000);
  EXPECT_NE(csv.find(format_text(",{},", difference)), std::string::npos);
}

TEST(ReportCsv, QuotesNamesWithCommas) {
  const TestStudy study(1);
  study.edit_protocol([](Json& p) { p["comparisons"][0]["baseline"] = "a,\"b\""; });
  EXPECT_NE(report_csv(read_study(study.path())).find("\"a,\"\"b\"\"\""), std::string::npos);
}

TEST(Numbers, AreReadable) {
  EXPECT_EQ(signed_number(-0.0301), "−0.0301");
  EXPECT_EQ(signed_number(0.0301), "+0.0301");
  EXPECT_EQ(signed_number(-0.00001), "0.0000");
  EXPECT_EQ(signed_number(std::nullopt), "–");
  EXPECT_EQ(fixed_number(kNotANumber), "–");
  EXPECT_EQ(p_value_text(0.0625), "0.0625");
  EXPECT_EQ(p_value_text(1e-9), "below 0.001");
}

}  // namespace
}  // namespace depthroute
