#include "data/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace depthroute {
namespace {

constexpr size_t kValid = std::string_view::npos;

// The textbook encoding, without any check.
std::string encode(uint32_t code) {
  auto tail = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | (code >> 6)), tail(code)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | (code >> 12)), tail(code >> 6), tail(code)};
  return {static_cast<char>(0xF0 | (code >> 18)), tail(code >> 12), tail(code >> 6), tail(code)};
}

TEST(Utf8, EveryCodePointIsValidAndEverySurrogateIsNot) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    ASSERT_EQ(find_invalid_utf8(encode(code)) == kValid, valid) << std::hex << code;
  }
}

// All sequences of up to three bytes, against a decoder that encodes again what it decoded.
TEST(Utf8, ShortSequencesAgreeWithDecodingAndEncodingAgain) {
  auto valid = [](const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      uint8_t first = static_cast<uint8_t>(text[at]);
      size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : 0;
      if (length == 0 || at + length > text.size()) return false;
      uint32_t code = length == 1 ? first : first & (0xFF >> (length + 1));
      for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3F);
      if (encode(code) != text.substr(at, length) || (code >= 0xD800 && code <= 0xDFFF)) return false;
      at += length;
    }
    return true;
  };
  for (uint32_t bytes = 0; bytes < 1u << 24;
       bytes += 7) {  // 7 has no factor in common with 2^24, so all kinds occur
    std::string text = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
    ASSERT_EQ(find_invalid_utf8(text) == kValid, valid(text)) << std::hex << bytes;
  }
}

TEST(Utf8, FindsTheOffsetAtAnyAlignment) {
  for (size_t before = 0; before < 40; ++before) {
    EXPECT_EQ(find_invalid_utf8(std::string(before, 'x') + "\xE9 und viel mehr Text"), before);
    EXPECT_EQ(find_invalid_utf8(std::string(before, 'x') + "\xE2\x82"), before);  // cut short at the end
  }
}

TEST(Utf8, ReplacesEachStrayByte) {
  EXPECT_EQ(replace_invalid_utf8("market\x92s fa\xE7"
                                 "ade"),
            "market\uFFFDs fa\uFFFDade");
  EXPECT_EQ(replace_invalid_utf8("\xFF\xFE"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("na\u00EFve"), "na\u00EFve");
}

TEST(Utf8, PrefixKeepsCharactersWhole) {
  const std::string text = "a\u00E9\u20AC\U0001F600";
  const std::vector<size_t> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t size = 0; size < expected.size(); ++size) EXPECT_EQ(utf8_prefix(text, size), expected[size]) << size;
}

}  // namespace
}  // namespace depthroute
