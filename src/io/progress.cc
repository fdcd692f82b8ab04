#include "io/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "io/format.h"

namespace depthroute {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kTerminalInterval = 0.1, kPlainInterval = 5.0;

}  // namespace

Progress::Progress(std::string label, int64_t total, std::string unit, bool shown)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      finished_(!shown),
      begin_(std::chrono::steady_clock::now()),
      last_shown_(begin_) {}

Progress::~Progress() {
  // A line left behind by an exception must not be overwritten by the error message.
  if (terminal_ && shown_ && !finished_) std::fputc('\n', stderr);
}

void Progress::set_start(int64_t done) {
  start_ = done_ = done;
}

void Progress::update(int64_t done, std::string_view detail) {
  done_ = done;
  auto now = std::chrono::steady_clock::now();
  if (finished_ || Seconds(now - last_shown_).count() < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  last_shown_ = now;
  show(done, detail, false);
}

void Progress::finish(std::string_view detail) {
  if (finished_) return;
  show(done_, detail, true);
  finished_ = true;
}

void Progress::show(int64_t done, std::string_view detail, bool last) {
  double seconds = Seconds(std::chrono::steady_clock::now() - begin_).count();
  double rate = seconds > 0 ? static_cast<double>(done - start_) / seconds : 0;
  std::string line = format_text("{}: ", label_);
  if (total_ > 0) {
    line += format_text("{:3.0f} %  {}/{} {}", 100.0 * static_cast<double>(done) / static_cast<double>(total_),
                        format_count(static_cast<double>(done)), format_count(static_cast<double>(total_)), unit_);
  } else {
    line += format_text("{} {}", format_count(static_cast<double>(done)), unit_);
  }
  line += format_text("  {}/s", format_count(rate));
  if (last) {
    line += format_text("  took {}", format_duration(seconds));
  } else if (total_ > 0 && rate > 0) {
    line += format_text("  ETA {}", format_duration(static_cast<double>(total_ - done) / rate));
  }
  if (!detail.empty()) line += format_text("  {}", detail);
  shown_ = true;
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s%s", line.c_str(), last ? "\n" : "");
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e15) return "unknown";
  auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 86400) return format_text("{} d {:02} h", whole / 86400, whole / 3600 % 24);
  if (whole >= 3600) return format_text("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return format_text("{} min {:02} s", whole / 60, whole % 60);
  return format_text("{} s", whole);
}

std::string format_count(double count) {
  if (count >= 1e9) return format_text("{:.2f} G", count / 1e9);
  if (count >= 1e6) return format_text("{:.2f} M", count / 1e6);
  if (count >= 1e4) return format_text("{:.1f} k", count / 1e3);
  return format_text("{:.0f}", count);
}

}  // namespace depthroute
