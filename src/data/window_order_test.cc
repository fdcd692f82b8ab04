#include "data/window_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "io/error.h"

namespace depthroute {
namespace {

std::vector<int64_t> take(const WindowOrder& order, int64_t begin, int64_t count) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(order.at(begin + i));
  return values;
}

void expect_permutation(const WindowOrder& order, int64_t epoch) {
  std::vector<bool> seen(static_cast<size_t>(order.windows()));
  for (int64_t i = 0; i < order.windows(); ++i) {
    int64_t value = order.at(epoch * order.windows() + i);
    ASSERT_TRUE(value >= 0 && value < order.windows()) << order.windows();
    ASSERT_FALSE(seen[static_cast<size_t>(value)]) << order.windows();
    seen[static_cast<size_t>(value)] = true;
  }
}

TEST(WindowOrder, EachEpochIsAPermutation) {
  for (int64_t windows = 1; windows <= 200; ++windows) {
    for (int64_t epoch : {0, 1, 17}) expect_permutation(WindowOrder(3, windows), epoch);
  }
  for (int64_t windows : {65535, 65536, 65537, 1000003}) expect_permutation(WindowOrder(5, windows), 2);
}

TEST(WindowOrder, DiffersBySeedAndEpoch) {
  WindowOrder order(1, 1000);
  std::set<std::vector<int64_t>> orders = {take(order, 0, 1000), take(order, 1000, 1000), take(order, 2000, 1000),
                                           take(WindowOrder(2, 1000), 0, 1000),
                                           take(WindowOrder(3, 1000), 1000, 1000)};
  EXPECT_EQ(orders.size(), 5u);
}

// A shuffled order has about one fixed point, and neighbours stay neighbours about twice in a thousand.
TEST(WindowOrder, LooksShuffled) {
  constexpr int64_t kWindows = 1000, kEpochs = 100;
  WindowOrder order(9, kWindows);
  int64_t fixed = 0, neighbours = 0;
  for (int64_t i = 0; i < kWindows * kEpochs - 1; ++i) {
    fixed += order.at(i) == i % kWindows ? 1 : 0;
    neighbours += std::abs(order.at(i + 1) - order.at(i)) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(fixed), kEpochs, 60);
  EXPECT_NEAR(static_cast<double>(neighbours), 2 * kEpochs, 100);
}

// Computed by a separate program from the description: runs already made must see the same data for ever.
TEST(WindowOrder, ValuesNeverChange) {
  using Values = std::vector<int64_t>;
  EXPECT_EQ(take(WindowOrder(0, 10), 0, 10), (Values{7, 2, 6, 8, 5, 4, 3, 9, 0, 1}));
  EXPECT_EQ(take(WindowOrder(0, 10), 10, 10), (Values{8, 4, 0, 1, 6, 2, 9, 5, 7, 3}));
  EXPECT_EQ(take(WindowOrder(7, 1000), 995, 10), (Values{694, 649, 921, 109, 778, 499, 191, 401, 5, 95}));
  EXPECT_EQ(take(WindowOrder(42, 123456789), 0, 3), (Values{119759448, 99774190, 23593509}));
  EXPECT_EQ(take(WindowOrder(42, int64_t{1} << 40), (int64_t{1} << 40) - 2, 3),
            (Values{866138557586, 77880579723, 512646124651}));
}

TEST(WindowOrder, RefusesDataWithoutAWindow) {
  EXPECT_THROW(WindowOrder(0, 0), InputError);
}

}  // namespace
}  // namespace depthroute
