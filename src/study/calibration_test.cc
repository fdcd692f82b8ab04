#include "study/calibration.h"

#include <gtest/gtest.h>

#include "study/report.h"
#include "study/report_test_study.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;
using testing::edit_json;
using testing::kTotal;
using testing::TestStudy;

// The A/A study of block_attnres in the shape of testing::TestStudy: the second runs are the first with final losses
// that differ by these.
class TwiceStudy : public TestStudy {
 public:
  explicit TwiceStudy(const std::vector<double>& differences) : TestStudy(std::ssize(differences)) {
    for (size_t i = 0; i < differences.size(); ++i) {
      const auto seed = static_cast<int64_t>(i) + 1;
      fs::copy(run("block_attnres", seed), run("block_attnres-again", seed), fs::copy_options::recursive);
      edit_json(run("block_attnres-again", seed) / "run.json",
                [](Json& json) { json["variant"] = "block_attnres-again"; });
      edit_metrics("block_attnres-again", seed, [&](Json& event) {
        if (event["event"] == "validation") event["loss"] = event["loss"].get<double>() + differences[i];
        return true;
      });
    }
    edit_protocol([](Json& p) {
      p["name"] = "twice";
      p["variants"] = {"block_attnres", "block_attnres-again"};
      p["comparisons"] = Json::array({{{"variant", "block_attnres-again"}, {"baseline", "block_attnres"}}});
      p["calibration"] = {{"variant", "block_attnres"}};
    });
  }
};

StudyResults beside(const TestStudy& study, const TestStudy& twice) {
  StudyResults results = read_study(study.path());
  results.calibration = read_calibration(twice.path(), results);
  return results;
}

TEST(Calibration, StandsBesideEveryEffect) {
  const TestStudy study(5);
  const TwiceStudy twice({0.004, -0.002, 0.001, -0.006, 0.003});
  const StudyResults results = beside(study, twice);
  // numpy.std([0.004, -0.002, 0.001, -0.006, 0.003], ddof=1)
  EXPECT_NEAR(*results.calibration->standard_deviation, 0.004062019202317979, 1e-12);
  EXPECT_NEAR(*results.calibration->largest, 0.006, 1e-12);
  EXPECT_EQ(results.calibration->variant, "block_attnres");
  const StudyAnalysis analysis = analyse(results);
  for (const Verdict& verdict : analysis.verdicts) {
    ASSERT_FALSE(verdict.sentences.empty());
    EXPECT_NE(verdict.sentences.back().find("at most 0.0060 nats in 5 pairs, with a standard deviation of 0.0041"),
              std::string::npos)
        << verdict.sentences.back();
    EXPECT_NE(verdict.sentences.back().find("is larger than that largest one"), std::string::npos);
  }
  EXPECT_EQ(report_json(results)["calibration"]["largest_difference"], *results.calibration->largest);
  EXPECT_FALSE(report_json(read_study(study.path())).contains("calibration"));
  for (const std::string& text : {render_report(results), report_markdown(results), verdict_text(results)}) {
    EXPECT_NE(text.find("Chance alone: two runs of block_attnres"), std::string::npos);
  }
  // An effect that chance alone reaches is called so.
  const std::string small = verdict_text(beside(study, TwiceStudy({0.4, -0.2, 0.1, -0.6, 0.3})));
  EXPECT_NE(small.find("no larger than that largest one"), std::string::npos);
}

TEST(Calibration, ItsOwnReportSaysThatItMeansNothing) {
  const TwiceStudy twice({0.004, -0.002, 0.001, -0.006, 0.003});
  const std::string text = verdict_text(read_study(twice.path()));
  EXPECT_NE(text.find("a verdict of better or worse is a false alarm. They are at most 0.0060 nats"),
            std::string::npos)
      << text;
  EXPECT_NE(render_report(read_study(twice.path())).find("An A/A study: block_attnres twice a seed"),
            std::string::npos);
}

TEST(Calibration, OddOnesAreSaid) {
  const TestStudy study(5);
  const TwiceStudy one({0.004});
  EXPECT_NE(verdict_text(beside(study, one)).find("at most 0.0040 nats in 1 pair (A/A study twice)"),
            std::string::npos);
  fs::remove_all(one.run("block_attnres-again", 1));
  EXPECT_NE(verdict_text(beside(study, one)).find("A/A study twice has no complete pair yet"), std::string::npos);
  const TwiceStudy identical({0, 0, 0, 0, 0});
  EXPECT_NE(verdict_text(beside(study, identical)).find("at most 0.0000 nats in 5 pairs"), std::string::npos);
}

TEST(Calibration, RefusesWhatSaysNothingAboutTheStudy) {
  const TestStudy study(5);
  const StudyResults results = read_study(study.path());
  const auto message = [&](const TestStudy& other) {
    try {
      read_calibration(other.path(), results);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message(study).find("is not an A/A study"), std::string::npos);
  const TwiceStudy trained({0.1, 0.2});
  trained.edit_protocol([](Json& p) { p["train"]["learning_rate"] = 0.5; });
  EXPECT_NE(message(trained).find("other values of train.learning_rate"), std::string::npos) << message(trained);
  const TwiceStudy data({0.1, 0.2});
  for (const fs::directory_entry& run : fs::directory_iterator(data.path() / "runs")) {
    edit_json(run.path() / "run.json", [](Json& json) { json["data_hash"] = "other"; });
  }
  EXPECT_NE(message(data).find("other data"), std::string::npos) << message(data);
  const TwiceStudy odd({0.1, 0.2});
  odd.edit_protocol([](Json& p) { p["comparisons"] = Json::array(); });
  EXPECT_NE(message(odd).find("compares one variant with itself"), std::string::npos) << message(odd);
}

}  // namespace
}  // namespace depthroute
