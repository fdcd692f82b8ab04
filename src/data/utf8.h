// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is a character like
// any other.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace depthroute {

// The byte offset of the first sequence that is not UTF-8, npos where there is none.
size_t find_invalid_utf8(std::string_view text);

// Replaces each byte that is part of no character by U+FFFD, the replacement character.
std::string replace_invalid_utf8(std::string_view text);

// The largest cut <= `size` that does not divide a character of the valid text.
size_t utf8_prefix(std::string_view text, size_t size);

}  // namespace depthroute
