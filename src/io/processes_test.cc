#include "io/processes.h"

#include <gtest/gtest.h>

#include <map>

#include "io/error.h"

namespace depthroute {
namespace {

std::vector<std::string> shell(const std::string& script) {
  return {"/bin/sh", "-c", script};
}

TEST(RunProcesses, GivesEveryCodeAndEveryLine) {
  std::map<size_t, std::vector<std::string>> lines;
  auto codes = run_processes({shell("echo out; echo one >&2; echo two >&2"),
                              shell("printf 'no end' >&2; exit 7"),
                              shell("kill -9 $$"),
                              {"/no/such/program"}},
                             2, [&](size_t index, const std::string& line) { lines[index].push_back(line); });
  EXPECT_EQ(codes, (std::vector<std::optional<int>>{0, 7, 137, 127}));
  EXPECT_EQ(lines, (std::map<size_t, std::vector<std::string>>{{0, {"one", "two"}}, {1, {"no end"}}}));
}

// The second can only end after the first has, and the first only while the second runs: they meet through a pipe.
TEST(RunProcesses, RunsAsManyAtATimeAsItMayAndNoMore) {
  std::string folder = ::testing::TempDir() + "processes";
  std::string meet = "rm -rf " + folder + "; mkdir " + folder + "; mkfifo " + folder + "/a";
  EXPECT_EQ(run_processes({shell(meet)}, 1, [](size_t, const std::string&) {})[0], 0);
  auto codes = run_processes({shell("echo hello > " + folder + "/a"), shell("cat " + folder + "/a")}, 2,
                             [](size_t, const std::string&) {});
  EXPECT_EQ(codes, (std::vector<std::optional<int>>{0, 0}));
  // One at a time: each takes a lock that would be there still if another ran.
  std::string alone = "mkdir " + folder + "/lock && sleep 0.05 && rmdir " + folder + "/lock";
  codes = run_processes({shell(alone), shell(alone), shell(alone)}, 1, [](size_t, const std::string&) {});
  EXPECT_EQ(codes, (std::vector<std::optional<int>>{0, 0, 0}));
}

}  // namespace
}  // namespace depthroute
