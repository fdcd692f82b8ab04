#include "train/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "io/error.h"
#include "io/test_folder.h"
#include "train/optimizer.h"

namespace depthroute {
namespace {

// The environment of one test, and nothing of torchrun's or Slurm's besides.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<const char*, const char*>> variables) {
    clear();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  ~Environment() { clear(); }

 private:
  static void clear() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
          "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "TORCHELASTIC_USE_AGENT_STORE"}) {
      unsetenv(name);
    }
  }
};

TEST(ProcessGroup, AProcessByItselfLeavesEverythingAsItIs) {
  Environment environment({});
  const ProcessGroup group = ProcessGroup::from_environment();
  EXPECT_TRUE(group.alone());
  EXPECT_TRUE(group.first());
  EXPECT_EQ(group.name(), "");
  std::vector<double> values = {1.5, -2};
  group.sum(values);
  EXPECT_EQ(values, (std::vector<double>{1.5, -2}));
  EXPECT_EQ(group.from_first(7), 7);
  EXPECT_TRUE(group.any(true));
  EXPECT_FALSE(group.any(false));
  at::Tensor tensor = at::ones({3});
  group.broadcast({tensor}, {0});
  EXPECT_TRUE(at::equal(tensor, at::ones({3})));
}

// A step of one task, and the batch script itself, which has the job's variables but is no task of a step.
TEST(ProcessGroup, OneTaskIsAProcessByItself) {
  Environment one({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}});
  EXPECT_TRUE(ProcessGroup::from_environment().alone());
  Environment script({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "77"}});
  EXPECT_TRUE(ProcessGroup::from_environment().alone());
}

TEST(ProcessGroup, SaysWhereItWaitedForTheOthers) {
  const auto message = [](std::vector<std::pair<const char*, const char*>> variables) {
    Environment environment(std::move(variables));
    return message_of<RunError>([] { ProcessGroup::from_environment(std::chrono::seconds(2)); });
  };
  // Nothing listens on port 1.
  const std::string alone =
      message({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  EXPECT_NE(alone.find("rank 1 of 2: the 2 processes did not all come to 127.0.0.1:1 within 2 s"),
            std::string::npos)
      << alone;
  // Slurm's ways of writing a list of machines; the port follows the job.
  for (auto [list, first] : {std::pair{"no-host[03-06,11],x", "no-host03:20077"},
                             {"no-host7,x[1-2]", "no-host7:20077"},
                             {"no-host[9]", "no-host9:20077"},
                             {"no-host", "no-host:20077"}}) {
    const std::string slurm = message({{"SLURM_PROCID", "1"},
                                       {"SLURM_STEP_NUM_TASKS", "4"},
                                       {"SLURM_STEP_NODELIST", list},
                                       {"SLURM_JOB_ID", "1230077"}});
    EXPECT_NE(slurm.find(first), std::string::npos) << slurm;
  }
}

TEST(ParameterShares, AreEvenAndWhole) {
  ParameterStore parameters;
  int64_t total = 0;
  for (int64_t size : {1000, 10, 400, 300, 310, 10, 1, 500}) {
    parameters.add(format_text("p{}", parameters.items().size()), at::ones({size}));
    total += size;
  }
  for (int64_t processes : {1, 2, 3, 8}) {
    std::vector<int64_t> elements(static_cast<size_t>(processes)), times(parameters.items().size());
    for (int64_t rank = 0; rank < processes; ++rank) {
      const ParameterShares shares = share_parameters(parameters, processes, rank);
      AdamW optimizer(parameters, {}, shares);
      int64_t state = 0;
      for (const auto& [name, tensor] : optimizer.state()) state += name == "step" ? 0 : tensor.numel();
      for (size_t i = 0; i < times.size(); ++i) {
        if (!shares.own(i)) continue;
        ++times[i];
        elements[static_cast<size_t>(rank)] += parameters.items()[i].second.numel();
      }
      EXPECT_EQ(state, 2 * elements[static_cast<size_t>(rank)]);
    }
    EXPECT_EQ(times, std::vector<int64_t>(times.size(), 1));
    // No share is larger than an even one and the largest parameter together.
    EXPECT_LE(std::ranges::max(elements), total / processes + 1000);
  }
}

}  // namespace
}  // namespace depthroute
