#include "io/progress.h"

#include <gtest/gtest.h>

namespace depthroute {
namespace {

TEST(Format, DurationsAndCounts) {
  EXPECT_EQ(format_duration(12.4), "12 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(3720), "1 h 02 min");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(format_duration(-1), "unknown");
  EXPECT_EQ(format_count(980), "980");
  EXPECT_EQ(format_count(45'600), "45.6 k");
  EXPECT_EQ(format_count(1'250'000), "1.25 M");
  EXPECT_EQ(format_count(2e9), "2.00 G");
}

}  // namespace
}  // namespace depthroute
