#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace depthroute {
namespace {

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

// The length of the character at the start of a non-empty text, 0 where there is no valid one. The second byte
// alone tells overlong forms, surrogates and too large values (RFC 3629, section 4).
size_t character_length(std::string_view text) {
  uint8_t first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  uint8_t second = static_cast<uint8_t>(text[1]);
  if (second < low || second > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  return length;
}

bool eight_ascii(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return (word & 0x8080808080808080ull) == 0;
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size() && eight_ascii(text.data() + at)) {
      at += 8;
      continue;
    }
    size_t length = character_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t bad; (bad = find_invalid_utf8(text)) != std::string_view::npos; text.remove_prefix(bad + 1)) {
    valid.append(text.substr(0, bad)).append("\xEF\xBF\xBD");
  }
  return valid.append(text);
}

size_t utf8_prefix(std::string_view text, size_t size) {
  if (size >= text.size()) return text.size();
  while (size > 0 && is_continuation(text[size])) --size;
  return size;
}

}  // namespace depthroute
