#include "study/route_findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace depthroute {
namespace {

// A read with these mean shares; every token has the mean distribution.
DepthReadSummary read_of(const std::string& kind, const std::string& role, int64_t layer,
                         const std::vector<std::string>& sources, const std::vector<double>& mean) {
  DepthReadSummary read{"site", kind, role, layer, sources, mean};
  read.entropy = 0;
  for (double share : mean) read.entropy -= share > 0 ? share * std::log(share) : 0;
  read.largest = *std::ranges::max_element(mean);
  return read;
}

const std::vector<std::string> kSources = {"embedding", "block 1", "partial"};

TEST(RouteFindings, NothingWithoutAChoice) {
  EXPECT_TRUE(route_findings({}, {}).empty());
  EXPECT_TRUE(route_findings({read_of("attention", "qkv", 0, {"embedding"}, {1})}, {}).empty());
}

TEST(RouteFindings, SoundRoutesAreSaidToBe) {
  const std::vector<std::string> found = route_findings({read_of("mlp", "mlp", 1, kSources, {0.5, 0.2, 0.3})}, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], "No route has collapsed, and no source is dead.");
}

TEST(RouteFindings, NamesCollapsedReadsByRouteAndLayer) {
  std::vector<DepthReadSummary> reads;
  for (int64_t layer : {1, 2, 3, 5})
    reads.push_back(read_of("attention", "qk", layer, kSources, {0.96, 0.02, 0.02}));
  reads.push_back(read_of("attention", "qk", 4, kSources, {0.94, 0.03, 0.03}));
  reads.push_back(read_of("output", "out", -1, kSources, {0, 1, 0}));
  reads.push_back(read_of("mlp", "mlp", 6, kSources, {0.3, 0.2, 0.5}));
  const std::vector<std::string> found = route_findings(reads, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("Collapsed"), std::string::npos);
  EXPECT_NE(found[0].find("the attention read's qk route in layers 1-3, 5; the output read."), std::string::npos)
      << found[0];
}

TEST(RouteFindings, SharpTokensThatDifferAreNoCollapse) {
  DepthReadSummary read = read_of("mlp", "mlp", 0, kSources, {0.8, 0.1, 0.1});
  read.entropy = 0.05, read.largest = 0.97;
  const std::vector<std::string> found = route_findings({read}, {});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], "No route has collapsed, and no source is dead.");
  EXPECT_NE(found[1].find("one source for each token"), std::string::npos) << found[1];
}

TEST(RouteFindings, NamesReadsThatDoNotChoose) {
  const std::vector<std::string> found = route_findings(
      {read_of("mlp", "mlp", 2, kSources, {0.33, 0.33, 0.34}), read_of("mlp", "mlp", 3, kSources, {0.7, 0.1, 0.2})},
      {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("the mlp read in layer 2."), std::string::npos) << found[0];
}

TEST(RouteFindings, ASourceIsDeadOnlyWhereNoReadTakesIt) {
  // An even share of three is 1/3: below 0.033 in both reads is dead, in one of them not.
  const DepthReadSummary first = read_of("mlp", "mlp", 1, kSources, {0.5, 0.03, 0.47}),
                         dead = read_of("mlp", "mlp", 2, kSources, {0.5, 0.02, 0.48}),
                         alive = read_of("mlp", "mlp", 2, kSources, {0.5, 0.04, 0.46});
  const std::vector<std::string> found = route_findings({first, dead}, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("Dead source (below 10 %"), std::string::npos) << found[0];
  EXPECT_NE(found[0].find(": block 1."), std::string::npos) << found[0];
  EXPECT_EQ(route_findings({first, alive}, {})[0], "No route has collapsed, and no source is dead.");
}

TEST(RouteFindings, RoutesThatLookAlike) {
  const std::vector<DepthReadSummary> reads = {read_of("attention", "v", 0, {"embedding"}, {1}),
                                               read_of("attention", "v", 1, kSources, {0.5, 0.2, 0.3})};
  // The first layer has one source and no say.
  EXPECT_NE(route_findings(reads, {{0, 0, 0}, {1, 0.009, 0.008}})[0].find("same sources"), std::string::npos);
  EXPECT_EQ(route_findings(reads, {{0, 0, 0}, {1, 0.02, 0.01}})[0],
            "No route has collapsed, and no source is dead.");
}

}  // namespace
}  // namespace depthroute
