// The expected values are those that tests/interop/power_numbers.py prints: scipy's noncentral t distribution and
// statsmodels' TTestPower.
#include "study/power.h"

#include <gtest/gtest.h>

#include "io/error.h"
#include "study/power_plan.h"
#include "study/report_analysis.h"
#include "study/report_test_study.h"

namespace depthroute {
namespace {

using testing::TestStudy;

TEST(Power, EqualsStatsmodels) {
  struct Case {
    double difference, deviation;
    int64_t pairs;
    double level, power;
  };
  for (const Case& c :
       {Case{0.03, 0.03, 5, 0.05, 0.40138991737179536}, Case{-0.03, 0.03, 5, 0.05, 0.40138991737179536},
        Case{0.01, 0.03, 10, 0.05, 0.15688254892373754}, Case{0.0301, 0.012, 5, 0.01, 0.7598558586062953},
        Case{0.02, 0.05, 40, 0.05, 0.6939863893011932}, Case{0.005, 0.05, 400, 0.05, 0.5140864602248495},
        Case{0.03, 0.03, 2, 0.05, 0.09280915505633605}, Case{0.2, 0.05, 3, 0.001, 0.04779649409966352},
        Case{0.001, 0.03, 7, 0.05, 0.050646403360599945}, Case{0.03, 0.03, 5, 0.0125, 0.15317943470907425},
        Case{0.00009, 0.03, 3000, 0.05, 0.05309667015766929},
        Case{0.00009, 0.03, 1000000, 0.05, 0.8508380990858601}, Case{0, 0.03, 5, 0.05, 0.05},
        Case{1, 0.01, 5, 0.05, 1}, Case{1, 0.01, 3, 0.05, 1}}) {
    EXPECT_NEAR(paired_t_power(c.difference, c.deviation, c.pairs, c.level), c.power, 1e-9)
        << c.difference << " " << c.pairs << " " << c.level;
  }
}

TEST(Power, IsTheLevelWithoutADifferenceAndRisesWithThePairs) {
  for (const double level : {1e-9, 1e-3, 0.05, 0.5}) {
    for (const int64_t pairs : {2, 3, 5, 100, 100000}) {
      EXPECT_NEAR(paired_t_power(0, 1, pairs, level) / level, 1, 1e-7) << level << " " << pairs;
    }
  }
  double before = 0;
  for (int64_t pairs = 2; pairs < 300; ++pairs) {
    const double power = paired_t_power(0.2, 1, pairs, 0.05);
    EXPECT_GT(power, before) << pairs;
    before = power;
  }
}

TEST(RequiredPairs, AreTheLeastWithThatPower) {
  EXPECT_EQ(required_pairs(0.03, 0.03, 0.8, 0.05), 10);
  EXPECT_EQ(required_pairs(-0.03, 0.03, 0.8, 0.05), 10);
  EXPECT_EQ(required_pairs(0.03, 0.01, 0.8, 0.05), 4);
  EXPECT_EQ(required_pairs(0.01, 0.03, 0.8, 0.05), 73);
  EXPECT_EQ(required_pairs(0.01, 0.03, 0.9, 0.05), 97);
  EXPECT_EQ(required_pairs(0.003, 0.03, 0.8, 0.05), 787);
  EXPECT_EQ(required_pairs(0.03, 0.03, 0.8, 0.0125), 15);
  EXPECT_EQ(required_pairs(1, 0.01, 0.8, 0.05), 2);
  EXPECT_EQ(required_pairs(1, 0, 0.8, 0.05), 2);
  EXPECT_EQ(required_pairs(0, 0.03, 0.8, 0.05), std::nullopt);
  EXPECT_EQ(required_pairs(0, 0, 0.8, 0.05), std::nullopt);
}

TEST(Power, RefusesWhatHasNone) {
  EXPECT_THROW(paired_t_power(0.1, 0, 5, 0.05), InputError);
  EXPECT_THROW(paired_t_power(0.1, kNotANumber, 5, 0.05), InputError);
  EXPECT_THROW(paired_t_power(kNotANumber, 1, 5, 0.05), InputError);
  EXPECT_THROW(paired_t_power(0.1, 1, 1, 0.05), InputError);
  EXPECT_THROW(paired_t_power(0.1, 1, 5, 0), InputError);
  EXPECT_THROW(required_pairs(0.1, 1, 1, 0.05), InputError);
}

StudyProtocol protocol_with(const std::function<void(Json&)>& change) {
  Json json = testing::protocol_of(5);
  change(json);
  return read_protocol(json, "test");
}

TEST(PowerPlan, TakesTheSpreadOfEveryComparisonFromAStudy) {
  const TestStudy measured(6);
  const StudyResults results = read_study(measured.path());
  const PowerPlan plan =
      plan_power(results.protocol, {.difference = -0.02, .study_folder = measured.path().string(), .power = 0.9});
  EXPECT_EQ(plan.difference, 0.02);
  ASSERT_EQ(plan.comparisons.size(), 2u);
  for (const ComparisonPower& item : plan.comparisons) {
    const PairedResult result = compare_runs(results, item.comparison, testing::kTotal);
    EXPECT_EQ(item.measured_pairs, 6);
    EXPECT_EQ(*item.standard_deviation, *result.statistics.standard_deviation);
    EXPECT_EQ(item.seeds, std::max<int64_t>(5, *required_pairs(0.02, *item.standard_deviation, 0.9, 0.05)));
    EXPECT_EQ(*item.power_as_planned, paired_t_power(0.02, *item.standard_deviation, 6, 0.05));
  }
  const std::string text = power_plan_text(plan);
  EXPECT_NE(text.find("rd_attnres against block_attnres"), std::string::npos) << text;
  EXPECT_EQ(power_plan_to_json(plan)["comparisons"][0]["seeds"], *plan.comparisons[0].seeds);
}

TEST(PowerPlan, FollowsTheRule) {
  const PowerOptions options{.difference = 0.03, .standard_deviation = 0.03};
  const auto seeds = [&](const std::function<void(Json&)>& change) {
    return *plan_power(protocol_with(change), options).comparisons[0].seeds;
  };
  EXPECT_EQ(seeds([](Json&) {}), 10);
  EXPECT_EQ(seeds([](Json& p) { p["decision"]["correction"] = "holm"; }), *required_pairs(0.03, 0.03, 0.8, 0.025));
  // Five seeds are the least that decide anything; the sign test cannot fall below 0.05 with fewer than six.
  const PowerOptions large{.difference = 1, .standard_deviation = 0.01};
  EXPECT_EQ(plan_power(protocol_with([](Json&) {}), large).comparisons[0].seeds, 5);
  EXPECT_EQ(plan_power(protocol_with([](Json& p) { p["decision"]["test"] = "sign"; }), large).comparisons[0].seeds,
            6);
  const PowerPlan exact = plan_power(protocol_with([](Json& p) { p["decision"]["minimal_difference"] = 0.03; }),
                                     {.standard_deviation = 0.03});
  EXPECT_EQ(exact.difference, 0.03);
  EXPECT_NE(power_plan_text(exact).find("half of the time"), std::string::npos);
}

TEST(PowerPlan, SaysWhatCannotBeHad) {
  const TestStudy one(1), two(2);
  const auto reason = [](const TestStudy& study, const std::function<void(Json&)>& change) {
    return plan_power(protocol_with(change), {.difference = 0.02, .study_folder = study.path().string()})
        .comparisons[0]
        .reason;
  };
  EXPECT_NE(reason(one, [](Json&) {}).find("a spread takes two"), std::string::npos);
  EXPECT_NE(reason(two, [](Json& p) { p["comparisons"][0]["baseline"] = "mhar"; }).find("no variant mhar"),
            std::string::npos);
  EXPECT_EQ(reason(two, [](Json&) {}), "");
  const StudyProtocol protocol = protocol_with([](Json&) {});
  EXPECT_NE(power_plan_text(plan_power(protocol, {.difference = 0.02, .study_folder = two.path().string()}))
                .find("measured on 2 pairs"),
            std::string::npos);
  EXPECT_THROW(plan_power(protocol, {.standard_deviation = 0.1}), InputError) << "no difference";
  EXPECT_THROW(plan_power(protocol, {.difference = 0.1}), InputError) << "no spread";
  EXPECT_THROW(plan_power(protocol, {.difference = 0.1, .study_folder = "/nonexistent"}), InputError);
}

TEST(PowerPlan, AReportSaysHowManySeedsItsOwnDifferenceNeeds) {
  const TestStudy study(5);
  const StudyResults results = read_study(study.path());
  const Verdict verdict = analyse(results).verdicts[0];
  const PairedStatistics s = compare_runs(results, verdict.comparison, testing::kTotal).statistics;
  EXPECT_EQ(verdict.seeds_for_observed,
            std::max<int64_t>(5, *required_pairs(*s.mean, *s.standard_deviation, 0.8, 0.05)));
  EXPECT_NE(std::ranges::count_if(verdict.sentences,
                                  [](const std::string& text) { return text.find("with power 0.8") != text.npos; }),
            0);
  EXPECT_FALSE(analyse(read_study(TestStudy(1).path())).verdicts[0].seeds_for_observed) << "one pair has no spread";
}

}  // namespace
}  // namespace depthroute
