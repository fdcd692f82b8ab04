// The one progress line: rewritten in place on a terminal, a plain line every few seconds otherwise. On standard
// error, so that standard output carries results only.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace depthroute {

class Progress {
 public:
  // `total` units of work (0: unknown); `unit` is the plural noun shown with the rate, e.g. "tokens".
  // Not `shown`: nothing is written.
  Progress(std::string label, int64_t total, std::string unit, bool shown = true);
  ~Progress();

  // `done` counts from the start of the work, `detail` is appended as it is (e.g. "loss 3.214").
  void update(int64_t done, std::string_view detail = {});
  // The last line; later updates are not shown.
  void finish(std::string_view detail = {});
  // Work done before this process started (a resumed run): left out of the rate.
  void set_start(int64_t done);

 private:
  void show(int64_t done, std::string_view detail, bool last);

  std::string label_, unit_;
  int64_t total_, start_ = 0, done_ = 0;
  bool terminal_, finished_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_shown_;
};

// "3 d 04 h", "1 h 02 min", "3 min 20 s", "12 s".
std::string format_duration(double seconds);
// "1.25 M", "980", with SI suffixes.
std::string format_count(double count);

}  // namespace depthroute
