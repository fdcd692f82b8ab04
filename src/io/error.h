// The exceptions of this project, all caught and shown once, by main(). A message is one line: what is wrong,
// where, what to do.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "io/format.h"

namespace depthroute {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bad input or usage: a file, a config, an argument. Exit code 2.
class InputError : public Error {
 public:
  using Error::Error;
};

// A failure while running: a full disk, a loss that is not finite. Exit code 1.
class RunError : public Error {
 public:
  using Error::Error;
};

template <typename... Args>
[[noreturn]] void fail_input(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(format_text(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_run(fmt::format_string<Args...> format, Args&&... args) {
  throw RunError(format_text(format, std::forward<Args>(args)...));
}

}  // namespace depthroute
