// Preloaded into a program, it makes a disk that breaks: after FAIL_AFTER calls of FAIL_CALL (write, fsync, open or rename) on files whose path
// has FAIL_UNDER in it, that call and all later ones return EIO. Reading goes on.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

template <typename Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool fails(const char* call, const char* path) {
  static const char* const chosen = std::getenv("FAIL_CALL");
  static const char* const under = std::getenv("FAIL_UNDER");
  static const long after = std::getenv("FAIL_AFTER") != nullptr ? std::atol(std::getenv("FAIL_AFTER")) : 0;
  static std::atomic<long> count{0};
  if (chosen == nullptr || under == nullptr || std::strcmp(chosen, call) != 0 ||
      std::strstr(path, under) == nullptr)
    return false;
  if (count++ < after) return false;
  errno = EIO;
  return true;
}

bool fails(const char* call, int descriptor) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size < 0) return false;
  path[size] = '\0';
  return fails(call, path);
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static auto* const next = original<ssize_t(int, const void*, size_t)>("write");
  return fails("write", descriptor) ? -1 : next(descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  static auto* const next = original<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return fails("write", descriptor) ? -1 : next(descriptor, bytes, size, offset);
}

int fsync(int descriptor) {
  static auto* const next = original<int(int)>("fsync");
  return fails("fsync", descriptor) ? -1 : next(descriptor);
}

int rename(const char* from, const char* to) {
  static auto* const next = original<int(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : next(from, to);
}

int open(const char* path, int flags, ...) {
  static auto* const next = original<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  return writes && fails("open", path) ? -1 : next(path, flags, mode);
}

}  // extern "C"
