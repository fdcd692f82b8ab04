#include "study/results.h"

#include <gtest/gtest.h>

#include "study/report_test_study.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;
using testing::edit_json;
using testing::kHalf;
using testing::kTotal;
using testing::TestStudy;

TEST(ReadStudy, ReadsWhatTheFilesSay) {
  const TestStudy study(2);
  const StudyResults results = read_study(study.path());
  EXPECT_EQ(results.protocol.variants, testing::kVariants);
  EXPECT_EQ(results.protocol.decision.milestone, kTotal);
  ASSERT_EQ(results.runs.size(), 6u);
  const RunResult& run = *results.find("rd_attnres", 2);
  EXPECT_EQ(run.state, RunState::kFinished);
  EXPECT_EQ(run.parameters, 3015808 + 5376);
  EXPECT_EQ(run.peak_bytes, 901234567);
  EXPECT_EQ(run.train.size(), 40u);
  EXPECT_EQ(run.validation.size(), 20u);
  ASSERT_EQ(run.diagnostics.size(), 4u);
  EXPECT_EQ(run.diagnostics.back().reads.size(), 8u * 3 + 1);
  EXPECT_EQ(run.diagnostics.back().reads.back().layer, -1) << "the final read lies in no layer";
  EXPECT_EQ(run.diagnostics.back().divergence.size(), 8u);
  EXPECT_DOUBLE_EQ(milestone_point(run, kHalf)->loss, testing::loss_at("rd_attnres", 2, 500));
  EXPECT_DOUBLE_EQ(run.test->loss, testing::final_loss("rd_attnres", 2) + 0.01);
  EXPECT_TRUE(results.find("standard", 1)->diagnostics.empty());
  EXPECT_EQ(results.find("standard", 3), nullptr);
}

TEST(ReadStudy, GivesEveryRunAState) {
  const TestStudy study(2);
  fs::remove_all(study.run("standard", 1));
  study.edit_metrics("standard", 2, [](Json& event) { return event["event"] != "end"; });
  study.edit_metrics("block_attnres", 1, [](Json& event) {
    if (event["event"] == "end") event["reason"] = "stopped";
    return true;
  });
  study.edit_metrics("block_attnres", 2, [](Json& event) {
    if (event["event"] == "end") event["reason"] = "non_finite", event["message"] = "loss is NaN";
    return true;
  });
  edit_json(study.run("rd_attnres", 1) / "run.json", [](Json& run) { run["study_hash"] = "other"; });
  write_file(study.run("rd_attnres", 2) / "run.json", "{\"format\": ");
  const StudyResults results = read_study(study.path());
  const auto state = [&](const char* variant, int64_t seed) { return results.find(variant, seed)->state; };
  EXPECT_EQ(state("standard", 1), RunState::kMissing);
  EXPECT_EQ(state("standard", 2), RunState::kRunning);
  EXPECT_EQ(state("block_attnres", 1), RunState::kStopped);
  EXPECT_EQ(state("block_attnres", 2), RunState::kNonFinite);
  EXPECT_EQ(state("rd_attnres", 1), RunState::kForeign);
  EXPECT_EQ(state("rd_attnres", 2), RunState::kUnreadable);
  for (const RunResult& run : results.runs) EXPECT_FALSE(run.message.empty()) << run.variant << run.seed;
  EXPECT_NE(results.find("block_attnres", 2)->message.find("loss is NaN"), std::string::npos);
}

TEST(ReadStudy, LastEventOfAStepCountsAndTrainingAfterAnEndResumesTheRun) {
  const TestStudy study(1);
  const fs::path metrics = study.run("standard", 1) / "metrics.jsonl";
  append_line(metrics, R"({"event":"validation","step":500,"tokens":2048000,"milestone":true,"loss":1.5})");
  append_line(metrics, R"({"event":"train","step":1000,"tokens":4096000,"loss":null,"seconds":3})");
  const StudyResults results = read_study(study.path());
  const RunResult& run = *results.find("standard", 1);
  EXPECT_EQ(run.validation.size(), 20u);
  EXPECT_EQ(milestone_point(run, kHalf)->loss, 1.5);
  EXPECT_TRUE(std::isnan(run.train.back().loss));
  EXPECT_EQ(run.state, RunState::kRunning);
}

TEST(ReadStudy, DamagedMetricsSpoilOneRunOnly) {
  for (
      const std::string line :
      {R"({"event":"validation","step":"x","tokens":1})", R"({"event":"end","step":1,"tokens":1,"reason":"bored"})",
       R"([1,2])",
       R"({"event":"diagnostics","step":1,"tokens":1,"reads":[{"site":"a","kind":"mlp","role":"m","sources":["x"],"mean":[]}]})",
       R"({"event":"train","step":-1,"tokens":1e300})", R"({"event":"diagnostics","step":1,"tokens":1,"reads":7})",
       R"({"event":"validation","step":1,"tokens":1,"loss":"low"})"}) {
    const TestStudy study(1);
    append_line(study.run("rd_attnres", 1) / "metrics.jsonl", line);
    const StudyResults results = read_study(study.path());
    EXPECT_EQ(results.find("rd_attnres", 1)->state, RunState::kUnreadable) << line;
    EXPECT_EQ(results.find("standard", 1)->state, RunState::kFinished);
  }
}

TEST(ReadStudy, ALineCutOffByAKillIsIgnored) {
  const TestStudy study(1);
  const fs::path metrics = study.run("standard", 1) / "metrics.jsonl";
  write_file(metrics, read_file(metrics) + "{\"event\":\"tra");
  EXPECT_EQ(read_study(study.path()).find("standard", 1)->state, RunState::kFinished);
}

TEST(ReadStudy, RefusesAProtocolThatIsNotSound) {
  const std::vector<std::function<void(Json&)>> faults = {
      [](Json& p) { p["variants"] = Json::array(); },
      [](Json& p) {
        p["variants"] = {"a", "a"};
      },
      [](Json& p) { p["variants"] = {"../../etc"}; },
      [](Json& p) {
        p["seeds"] = {1, -2};
      },
      [](Json& p) { p["seeds"] = "1"; },
      [](Json& p) {
        p["milestones"] = {testing::kTotal, testing::kHalf};
      },
      [](Json& p) { p["decision"]["milestone"] = 7; },
      [](Json& p) { p["decision"]["test"] = "vibes"; },
      [](Json& p) { p["decision"]["correction"] = "bonferroni"; },
      [](Json& p) { p["decision"]["metric"] = "accuracy"; },
      [](Json& p) { p["decision"]["level"] = 1.5; },
      [](Json& p) { p.erase("decision"); },
      [](Json& p) {
        p["comparisons"] = {{{"variant", "rd_attnres"}}};
      },
      [](Json& p) { p["comparisons"] = 3; },
      [](Json& p) { p["total_tokens"] = 1.5; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    const TestStudy study(1);
    study.edit_protocol(faults[i]);
    EXPECT_THROW(read_study(study.path()), InputError) << "fault " << i;
  }
  EXPECT_THROW(read_study("/nonexistent"), InputError);
  const TestStudy study(1);
  edit_json(study.path() / "study.json", [](Json& json) { json["format"] = "depthroute-study/99"; });
  EXPECT_THROW(read_study(study.path()), InputError);
}

TEST(MilestonePoint, IsFoundWithinOneStepOfTheMilestone) {
  RunResult run;
  run.validation.resize(2);
  run.validation[0].step = 10, run.validation[0].tokens = 1000, run.validation[0].milestone = true;
  run.validation[1].step = 20, run.validation[1].tokens = 2000;
  EXPECT_EQ(milestone_point(run, 950), &run.validation[0]);
  EXPECT_EQ(milestone_point(run, 1099), &run.validation[0]);
  EXPECT_EQ(milestone_point(run, 1100), nullptr);
  EXPECT_EQ(milestone_point(run, 2000), nullptr) << "not marked as a milestone";
}

}  // namespace
}  // namespace depthroute
