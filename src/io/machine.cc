#include "io/machine.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <thread>

#include "io/format.h"

namespace depthroute {
namespace {

// The text after "KEY:" of a file of such lines, trimmed; empty where there is none.
std::string line_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    size_t begin = line.find_first_not_of(" \t:", key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t own_kibibytes(const char* key) {
  const std::string text = line_value("/proc/self/status", key);
  return text.empty() ? 0 : std::atoll(text.c_str());
}

}  // namespace

double machine_memory_bytes() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::string machine_description() {
  std::string processor = line_value("/proc/cpuinfo", "model name");
  return format_text("{}, {} cores, {:.0f} GiB", processor.empty() ? "unknown processor" : processor,
                     std::thread::hardware_concurrency(), machine_memory_bytes() / (1 << 30));
}

int64_t memory_bytes() {
  return own_kibibytes("VmRSS") * 1024;
}

int64_t peak_memory_bytes() {
  return own_kibibytes("VmHWM") * 1024;
}

void keep_freed_memory() {
  // M_MMAP_THRESHOLD would not do: glibc takes no more than 32 MiB for it, and setting M_TRIM_THRESHOLD alone freezes it
  // at 128 KiB.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  // What one thread has freed is there for all: a training step allocates little, but much at a time.
  mallopt(M_ARENA_MAX, 1);
}

void reset_peak_memory() {
  // 5 resets the high-water mark (proc(5)); where that is not allowed the mark of the whole process stays.
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace depthroute
