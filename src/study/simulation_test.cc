// What the rule promises, on simulated studies: how often it shows a difference where there is none, and where there is
// one. Decided by the same function as a report. Fixed seeds, so that a failure is a change of the code; bounds are those
// that a right rule breaks once in a thousand.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>

#include "study/power.h"
#include "study/report_analysis.h"
#include "study/report_test_study.h"

namespace depthroute {
namespace {

constexpr int kStudies = 2000;

// The engine's numbers are the standard's; std::normal_distribution's differ between libraries.
class Normal {
 public:
  explicit Normal(uint64_t seed) : engine_(seed) {}
  double next() {
    const double u = (static_cast<double>(engine_() >> 11) + 0.5) * 0x1p-53,
                 v = static_cast<double>(engine_() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  std::mt19937_64 engine_;
};

struct Setting {
  int64_t pairs = 5, comparisons = 1;
  double effect = 0, deviation = 0.03;  // of a paired difference; effect: of the first comparison
  std::string test = "t", correction = "none";
  double level = 0.05, minimal_difference = 0;
};

StudyProtocol protocol_of(const Setting& setting) {
  Json json = testing::protocol_of(setting.pairs);
  const Json first = json["comparisons"][0];
  json["comparisons"] = Json::array();
  for (int64_t i = 0; i < setting.comparisons; ++i) json["comparisons"].push_back(first);
  json["decision"]["test"] = setting.test;
  json["decision"]["correction"] = setting.correction;
  json["decision"]["level"] = setting.level;
  json["decision"]["minimal_difference"] = setting.minimal_difference;
  return read_protocol(json, "simulation");
}

struct Shown {
  double first = 0, any = 0;  // shares of the studies: a difference in the first comparison, in any of them
};

// Studies of variants against one baseline: the seed moves all of them, the rest is noise of each run, so that the
// comparisons of a study depend on one another.
Shown simulate(const Setting& setting) {
  const StudyProtocol protocol = protocol_of(setting);
  Normal normal(7);
  const double noise = setting.deviation / std::numbers::sqrt2;
  int first = 0, any = 0;
  for (int study = 0; study < kStudies; ++study) {
    std::vector<double> seed_effect, baseline;
    for (int64_t i = 0; i < setting.pairs; ++i) {
      seed_effect.push_back(3 + 0.1 * normal.next());
      baseline.push_back(seed_effect.back() + noise * normal.next());
    }
    std::vector<PairedResult> results;
    std::vector<Verdict> verdicts;
    for (size_t c = 0; c < protocol.comparisons.size(); ++c) {
      std::vector<double> losses;
      for (double seed : seed_effect)
        losses.push_back(seed + noise * normal.next() + (c == 0 ? setting.effect : 0));
      results.push_back({protocol.comparisons[c], protocol.decision.milestone});
      results.back().statistics = paired_statistics(losses, baseline, 1);
      verdicts.push_back({protocol.comparisons[c]});
    }
    std::vector<const PairedResult*> decisive;
    for (const PairedResult& result : results) decisive.push_back(&result);
    decide_verdicts(decisive, protocol, &verdicts);
    const auto shown = [](const Verdict& verdict) {
      return verdict.outcome == Outcome::kBetter || verdict.outcome == Outcome::kWorse;
    };
    first += shown(verdicts[0]);
    any += std::ranges::any_of(verdicts, shown);
  }
  return {static_cast<double>(first) / kStudies, static_cast<double>(any) / kStudies};
}

// How far a share of kStudies strays from its probability, once in a thousand times.
double margin(double probability) {
  return 3.3 * std::sqrt(probability * (1 - probability) / kStudies);
}

TEST(Simulation, WithoutAnEffectTheTTestErrsAtItsLevel) {
  for (const double level : {0.05, 0.01, 0.2}) {
    EXPECT_NEAR(simulate({.level = level}).first, level, margin(level)) << level;
  }
  EXPECT_LE(simulate({.minimal_difference = 0.02}).first, 0.05 + margin(0.05));
}

TEST(Simulation, WithoutAnEffectTheExactTestsErrAtMostAtTheirLevel) {
  for (const char* test : {"sign", "permutation"}) {
    EXPECT_EQ(simulate({.test = test}).first, 0) << test << ": five pairs cannot fall below p = 0.0625";
    EXPECT_NEAR(simulate({.test = test, .level = 0.0626}).first, 0.0625, margin(0.0625)) << test;
    EXPECT_LE(simulate({.pairs = 8, .test = test}).first, 0.05 + margin(0.05)) << test;
  }
}

TEST(Simulation, HolmKeepsTheStudyWithinItsLevel) {
  // Without the correction four comparisons err about three times as often; so the bound below means something.
  EXPECT_GT(simulate({.comparisons = 4}).any, 0.05 + 2 * margin(0.05));
  for (const char* test : {"t", "permutation"}) {
    EXPECT_LE(simulate({.pairs = 8, .comparisons = 4, .test = test, .correction = "holm"}).any, 0.05 + margin(0.05))
        << test;
  }
  EXPECT_LE(simulate({.comparisons = 4, .correction = "holm"}).any, 0.05 + margin(0.05));
}

TEST(Simulation, ARealEffectIsShownAsOftenAsThePowerSays) {
  for (const auto& [pairs, effect] : {std::pair<int64_t, double>{5, 0.03}, {5, 0.06}, {10, -0.03}, {12, 0.02}}) {
    const double power = paired_t_power(effect, 0.03, pairs, 0.05);
    EXPECT_NEAR(simulate({.pairs = pairs, .effect = effect}).first, power, margin(power)) << pairs << " " << effect;
  }
  const int64_t pairs = *required_pairs(0.03, 0.03, 0.8, 0.05);
  EXPECT_GE(simulate({.pairs = pairs, .effect = 0.03}).first, 0.8 - margin(0.8));
  // A measured difference of at least the true one: half of the studies at most, whatever their power.
  EXPECT_LE(simulate({.pairs = 12, .effect = 0.03, .minimal_difference = 0.03}).first, 0.5 + margin(0.5));
}

}  // namespace
}  // namespace depthroute
