#include "study/status.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "study/report_test_study.h"

namespace depthroute {
namespace {

using testing::kTotal;
using testing::TestStudy;

const RunStatus& run_named(const Status& status, const std::string& name) {
  for (const RunStatus& run : status.runs) {
    if (run.name == name) return run;
  }
  throw std::out_of_range(name);
}

TEST(Status, TellsEveryStateOfARun) {
  const TestStudy study(3);
  const auto cut = [&](const std::string& variant, int64_t seed, const Json& end) {
    study.edit_metrics(variant, seed, [](Json& event) {
      return event["event"] != "end" && event.value("tokens", int64_t{0}) <= kTotal / 2;
    });
    if (!end.is_null()) append_line(study.run(variant, seed) / "metrics.jsonl", dump_json(end));
  };
  cut("standard", 1, {{"event", "end"}, {"step", 500}, {"tokens", kTotal / 2}, {"reason", "stopped"}});
  cut("standard", 2, {{"event", "end"}, {"step", 500}, {"tokens", kTotal / 2}, {"reason", "non_finite"}});
  cut("standard", 3, nullptr);
  cut("block_attnres", 1, nullptr);
  FolderLock lock(study.run("block_attnres", 1));
  std::filesystem::remove_all(study.run("block_attnres", 2));
  write_file(study.run("block_attnres", 3) / "run.json", "{");

  const Status status = read_status(study.path());
  ASSERT_EQ(status.runs.size(), 9u);
  EXPECT_EQ(run_named(status, "standard-seed1").activity, Activity::kStopped);
  EXPECT_EQ(run_named(status, "standard-seed2").activity, Activity::kFailed);
  EXPECT_EQ(run_named(status, "standard-seed3").activity, Activity::kStale);
  EXPECT_EQ(run_named(status, "block_attnres-seed1").activity, Activity::kRunning);
  EXPECT_EQ(run_named(status, "block_attnres-seed2").activity, Activity::kWaiting);
  EXPECT_EQ(run_named(status, "block_attnres-seed3").activity, Activity::kFailed);
  EXPECT_EQ(run_named(status, "rd_attnres-seed1").activity, Activity::kFinished);
  const RunStatus& running = run_named(status, "block_attnres-seed1");
  EXPECT_EQ(running.tokens, kTotal / 2);
  // At 4096 tokens in 0.46 s the other half takes 500 * 0.46 s.
  EXPECT_NEAR(running.seconds_left(), 230, 1e-6);
  EXPECT_NE(status_text(status).find("9 runs, 3 finished, 1 running, 1 stopped, 1 stale, 2 failed, 1 waiting"),
            std::string::npos)
      << status_text(status);
  EXPECT_EQ(status_to_json(status)["runs"][0]["state"], "stopped");
}

TEST(Status, WritesNothingAndRefusesWhatIsNeither) {
  const TestStudy study(1);
  read_status(study.path());
  EXPECT_FALSE(std::filesystem::exists(study.run("standard", 1) / "lock"));
  EXPECT_THROW(read_status(study.path() / "runs"), InputError);
  EXPECT_THROW(read_status(study.path() / "absent"), InputError);
}

}  // namespace
}  // namespace depthroute
