#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr const char* kLockFile = "lock";

std::string last_error() {
  return std::strerror(errno);
}

// A folder without a slash at its end, which would hide its name.
fs::path without_slash(const fs::path& path) {
  fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

// Beside the destination, so that the rename stays within one file system; the process number keeps two writers
// apart.
fs::path temporary_name(const fs::path& path) {
  fs::path normal = without_slash(path);
  return normal.parent_path() / format_text(".{}{}{}", normal.filename().string(), kTemporaryMark, getpid());
}

// A rename is on the disk only once the folder that holds the name is.
void flush_folder(const fs::path& folder) {
  int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

// In place of what was there before, if anything.
void put_in_place(const fs::path& temporary, const fs::path& path) {
  flush_folder(temporary);
  std::error_code error;
  if (!fs::exists(path)) {
    if (rename(temporary.c_str(), path.c_str()) != 0) {
      fail_run("cannot put the folder '{}' in place: {}", path.string(), last_error());
    }
  } else {
    // The two folders change places in one step: there is no moment without one. The old content then goes.
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
      fail_run("cannot put the folder '{}' in place: {}", path.string(), last_error());
    }
    fs::remove_all(temporary, error);
  }
  flush_folder(path.parent_path());
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

int open_for_reading(const fs::path& path, uint64_t& size) {
  int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_input("cannot read '{}': {}", path.string(), last_error());
  struct stat info {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    fail_input("cannot read '{}': not a regular file", path.string());
  }
  size = static_cast<uint64_t>(info.st_size);
  return descriptor;
}

void write_all(int descriptor, const void* bytes, uint64_t size, const fs::path& path) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    ssize_t written = ::write(descriptor, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_run("cannot write '{}': {}", path.string(), last_error());
    next += written;
    size -= static_cast<uint64_t>(written);
  }
}

void overwrite(int descriptor, uint64_t offset, const void* bytes, uint64_t size, const fs::path& path) {
  if (pwrite(descriptor, bytes, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
    fail_run("cannot write '{}': {}", path.string(), last_error());
  }
}

}  // namespace

std::string read_file(const fs::path& path, uint64_t max_bytes) {
  uint64_t size = 0;
  Descriptor descriptor(open_for_reading(path, size));
  if (size > max_bytes)
    fail_input("'{}' is {} bytes long, more than the {} expected here", path.string(), size, max_bytes);
  std::string bytes(size, '\0');
  uint64_t done = 0;
  while (done < size) {
    ssize_t got = ::read(descriptor.get(), bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_input("cannot read '{}': {}", path.string(), last_error());
    if (got == 0) break;  // the file became shorter meanwhile
    done += static_cast<uint64_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

void write_file(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void append_bytes(const fs::path& path, std::string_view bytes) {
  Descriptor descriptor(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (descriptor.get() < 0) fail_run("cannot write '{}': {}", path.string(), last_error());
  write_all(descriptor.get(), bytes.data(), bytes.size(), path);
}

void append_line(const fs::path& path, std::string_view line) {
  append_bytes(path, std::string(line) + '\n');
}

void sync_file(const fs::path& path) {
  Descriptor descriptor(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (descriptor.get() < 0 || fsync(descriptor.get()) != 0)
    fail_run("cannot write '{}': {}", path.string(), last_error());
}

void make_folder(const fs::path& path) {
  if (path.empty()) return;  // the parent of a bare name: the working folder
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_run("cannot make the folder '{}': {}", path.string(), error.message());
}

void remove_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::directory_entry& item : fs::directory_iterator(folder, error)) {
    std::string name = item.path().filename().string();
    if (name.starts_with('.') && name.find(kTemporaryMark) != std::string::npos) found.push_back(item.path());
  }
  for (const fs::path& path : found) fs::remove_all(path, error);
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), temporary_(temporary_name(path_)) {
  if (fs::is_directory(path_)) fail_run("cannot write '{}': it is a folder", path_.string());
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_run("cannot write '{}': {}", path_.string(), last_error());
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, uint64_t size) {
  write_all(descriptor_, bytes, size, path_);
}

void AtomicFile::write_at(uint64_t offset, const void* bytes, uint64_t size) {
  overwrite(descriptor_, offset, bytes, size, path_);
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0) fail_run("cannot write '{}': {}", path_.string(), last_error());
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail_run("cannot put '{}' in place: {}", path_.string(), last_error());
  }
  close(descriptor_);
  descriptor_ = -1;
  flush_folder(path_.parent_path());
}

GrowingFile::GrowingFile(fs::path path, uint64_t size) : path_(std::move(path)), size_(size) {
  descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  struct stat info {};
  if (descriptor_ < 0 || fstat(descriptor_, &info) != 0)
    fail_run("cannot write '{}': {}", path_.string(), last_error());
  const bool whole = static_cast<uint64_t>(info.st_size) >= size;
  if (whole && ftruncate(descriptor_, static_cast<off_t>(size)) == 0 &&
      lseek(descriptor_, static_cast<off_t>(size), SEEK_SET) >= 0)
    return;
  const std::string reason = whole ? last_error() : format_text("it has {} of {} bytes", info.st_size, size);
  close(descriptor_);
  fail_run("cannot go on with '{}': {}", path_.string(), reason);
}

GrowingFile::~GrowingFile() {
  close(descriptor_);
}

void GrowingFile::write(const void* bytes, uint64_t size) {
  write_all(descriptor_, bytes, size, path_);
  size_ += size;
}

void GrowingFile::write_at(uint64_t offset, const void* bytes, uint64_t size) {
  overwrite(descriptor_, offset, bytes, size, path_);
}

void GrowingFile::sync() {
  if (fsync(descriptor_) != 0) fail_run("cannot write '{}': {}", path_.string(), last_error());
}

AtomicFolder::AtomicFolder(fs::path path) : path_(without_slash(path)), temporary_(temporary_name(path_)) {
  std::error_code error;
  fs::remove_all(temporary_, error);
  make_folder(temporary_);
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  std::error_code error;
  fs::remove_all(temporary_, error);
}

void AtomicFolder::commit() {
  put_in_place(temporary_, path_);
  committed_ = true;
}

ContinuedFolder::ContinuedFolder(fs::path path) : path_(without_slash(path)) {
  temporary_ = path_.parent_path() / format_text(".{}.unfinished", path_.filename().string());
  make_folder(temporary_);
  lock_ = std::make_unique<FolderLock>(temporary_);
}

ContinuedFolder::~ContinuedFolder() {
  if (!lock_ || keep_) return;
  std::error_code error;
  fs::remove_all(temporary_, error);
}

void ContinuedFolder::clear() {
  keep_ = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(temporary_)) {
    std::error_code error;
    if (entry.path().filename() != kLockFile) fs::remove_all(entry.path(), error);
    if (error) fail_run("cannot remove '{}': {}", entry.path().string(), error.message());
  }
}

void ContinuedFolder::commit() {
  std::error_code error;
  fs::remove(temporary_ / kLockFile, error);
  put_in_place(temporary_, path_);
  lock_.reset();
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  Descriptor descriptor(open_for_reading(path, size_));
  if (size_ == 0) return;
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (address == MAP_FAILED) fail_input("cannot map '{}': {}", path.string(), last_error());
  data_ = static_cast<const char*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FolderLock::FolderLock(const fs::path& folder) {
  fs::path path = folder / kLockFile;
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail_run("cannot write '{}': {}", path.string(), last_error());
  // is_locked holds it for an instant: one refusal is none yet.
  bool held = flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  for (int attempt = 0; !held && attempt < 10; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held = flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  }
  if (!held) {
    close(descriptor_);
    fail_run("'{}' is in use by another process; wait for it, or stop it first", folder.string());
  }
}

FolderLock::~FolderLock() {
  close(descriptor_);
}

bool is_locked(const fs::path& folder) {
  int descriptor = open((folder / kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  // Shared, and held for an instant only: two that look do not see each other, and FolderLock asks more than once.
  bool locked = flock(descriptor, LOCK_SH | LOCK_NB) != 0;
  close(descriptor);
  return locked;
}

}  // namespace depthroute
