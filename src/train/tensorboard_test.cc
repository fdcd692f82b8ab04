#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <numeric>

#include "io/file.h"
#include "io/test_folder.h"

namespace depthroute {
namespace {

// The examples of RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, HasThePublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  EXPECT_EQ(crc32c(ascending), 0x46dd794eU);
}

// What every event file of TensorFlow begins with: 24 bytes follow, and the checksum of that.
TEST(TensorboardRecord, BeginsAsTensorflowsDo) {
  EXPECT_EQ(tensorboard_record(std::string(24, 'x')).substr(0, 12),
            std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
}

TEST(TensorboardFile, HoldsTheNumbersOfEvents) {
  TestFolder folder;
  const TensorboardFile file(folder / "tensorboard", 6);
  file.add({{"event", "train"}, {"step", 7}, {"loss", 1.5}, {"milestone", true}, {"name", "x"}});
  std::string bytes;
  for (const auto& item : std::filesystem::directory_iterator(folder / "tensorboard")) {
    EXPECT_TRUE(item.path().filename().string().starts_with("events.out.tfevents."));
    bytes += read_file(item.path());
  }
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<unsigned char>(bytes[at]);  // all are short
    events.push_back(bytes.substr(at + 12, size));
    EXPECT_EQ(tensorboard_record(events.back()), bytes.substr(at, size + 16));
    at += size + 16;
  }
  ASSERT_EQ(events.size(), 3u);
  // After the wall time (nine bytes): the step, then what the event is.
  using namespace std::string_view_literals;
  EXPECT_EQ(events[0].substr(9),
            "\x10\0\x1a\x0d"
            "brain.Event:2"sv);
  EXPECT_EQ(events[1].substr(9), "\x10\x07\x3a\x02\x08\x01"sv);
  EXPECT_EQ(events[2].substr(9),
            "\x10\x07\x2a\x13\x0a\x11\x0a\x0a"
            "train/loss\x15\0\0\xc0\x3f"sv);
}

}  // namespace
}  // namespace depthroute
