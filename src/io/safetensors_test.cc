#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "io/error.h"
#include "io/test_folder.h"

namespace depthroute {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

std::string error_of(const TestFolder& folder, const std::string& bytes) {
  write_file(folder / "x.safetensors", bytes);
  return message_of<InputError>([&] { SafetensorsFile file(folder / "x.safetensors"); });
}

TEST(Safetensors, RoundTrip) {
  TestFolder folder;
  float values[6] = {1, 2, 3, 4, 5, 6};
  int64_t number = 7;
  std::map<std::string, SafetensorsEntry> entries;
  entries["matrix"] = {"F32", {2, 3}, reinterpret_cast<const char*>(values), sizeof(values)};
  entries["number"] = {"I64", {}, reinterpret_cast<const char*>(&number), sizeof(number)};
  entries["empty"] = {"F64", {0, 4}, nullptr, 0};
  write_safetensors(folder / "x.safetensors", entries, {{"format", "pt"}});

  SafetensorsFile file(folder / "x.safetensors");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entry("matrix").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.entry("matrix").data, values, sizeof(values)), 0);
  EXPECT_EQ(std::memcmp(file.entry("number").data, &number, sizeof(number)), 0);
  EXPECT_EQ(file.entry("empty").size, 0u);
  EXPECT_NE(message_of<InputError>([&] { file.entry("other"); }).find("no tensor 'other'"), std::string::npos);
}

TEST(Safetensors, EveryTruncationIsDetected) {
  TestFolder folder;
  std::string whole = with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  EXPECT_EQ(error_of(folder, whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of(folder, whole.substr(0, length)), "") << length << " bytes";
  }
  EXPECT_NE(error_of(folder, whole + "x"), "");
}

TEST(Safetensors, IllFormedHeadersAreRefused) {
  TestFolder folder;
  std::string data(8, 'x');
  for (
      const char* header : {
          "[]", "nonsense", R"({"a":1})", R"({"a":{"dtype":"F32","shape":[2]}})",
          R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})",                      // unknown dtype
          R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",                      // shape against size
          R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",                     // negative extent
          R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",  // overflow
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",                      // backwards
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",  // overlap
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",    // gap
          R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})",  // wrong type
      }) {
    EXPECT_NE(error_of(folder, with_header(header, data)), "") << header;
  }
}

}  // namespace
}  // namespace depthroute
