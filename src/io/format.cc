#define FMT_HEADER_ONLY
#include "io/format.h"

#include <fmt/format.h>

namespace depthroute {

std::string format_arguments(fmt::string_view format, fmt::format_args arguments) {
  return fmt::vformat(format, arguments);
}

}  // namespace depthroute
