// fmt's formatting, compiled once: with fmt as a header each file would compile all of it, five seconds a file.
#pragma once
#if __has_include(<fmt/base.h>)
#include <fmt/base.h>
#else
#include <fmt/core.h>
#endif

#include <string>
#include <utility>

namespace depthroute {

std::string format_arguments(fmt::string_view format, fmt::format_args arguments);

// fmt::format for numbers, characters and strings.
template <typename... Args>
std::string format_text(fmt::format_string<Args...> format, Args&&... args) {
  return format_arguments(format.get(), fmt::make_format_args(args...));
}

// The items of a range of numbers or strings, one after another.
template <typename Range>
std::string join_text(const Range& range, const char* separator) {
  std::string text;
  for (const auto& item : range) {
    if (!text.empty()) text += separator;
    text += format_text("{}", item);
  }
  return text;
}

}  // namespace depthroute
