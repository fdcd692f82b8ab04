// Whole files and folders that are either there or not: everything is written under a temporary name beside its
// destination, flushed to the disk (fsync) and renamed. An object destroyed before commit() removes its temporary
// and leaves the old content.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace depthroute {

// The bytes of a file. InputError where it is missing, a folder, unreadable or larger than max_bytes.
std::string read_file(const std::filesystem::path& path, uint64_t max_bytes = uint64_t{1} << 31);

// Replaces the file's content as a whole. RunError where that fails (full disk, read-only folder).
void write_file(const std::filesystem::path& path, std::string_view bytes);

// Appends to an open log file of lines (metrics.jsonl): whole lines only, flushed to the operating system at once.
void append_line(const std::filesystem::path& path, std::string_view line);

// Appends to any file, made where there is none.
void append_bytes(const std::filesystem::path& path, std::string_view bytes);

// Flushes a file's content to the disk. RunError where that fails.
void sync_file(const std::filesystem::path& path);

// Makes the folder and its parents. RunError where that fails.
void make_folder(const std::filesystem::path& path);

// Removes the temporaries that killed processes left in a folder. The caller holds the folder's lock.
void remove_leftovers(const std::filesystem::path& folder);

// A file written piece by piece.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, uint64_t size);
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }
  // Overwrites bytes already written (a header whose count is known only at the end).
  void write_at(uint64_t offset, const void* bytes, uint64_t size);
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// A file written piece by piece that a later process may go on with: what sync() has returned for stays there.
class GrowingFile {
 public:
  // Opens or makes the file and cuts it to `size` bytes, which it must have. RunError where that fails.
  GrowingFile(std::filesystem::path path, uint64_t size);
  ~GrowingFile();
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  void write(const void* bytes, uint64_t size);
  void write_at(uint64_t offset, const void* bytes, uint64_t size);
  void sync();
  uint64_t size() const { return size_; }

 private:
  std::filesystem::path path_;
  uint64_t size_;
  int descriptor_ = -1;
};

// A folder filled under a temporary name. commit() puts it in place of what was there before, if anything.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to write the content until commit().
  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  bool committed_ = false;
};

// Holds a lock file as long as it lives; the operating system releases it with the process, however that ends.
class FolderLock {
 public:
  // RunError where another process holds it.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

// A folder filled under a temporary name that is the same each time (.NAME.unfinished), so that a later process can
// go on where one stopped. Locked against a second process as long as it lives. Without keep() or commit() it is
// removed, with what an earlier process left in it.
class ContinuedFolder {
 public:
  // RunError where another process holds it.
  explicit ContinuedFolder(std::filesystem::path path);
  ~ContinuedFolder();
  ContinuedFolder(const ContinuedFolder&) = delete;
  ContinuedFolder& operator=(const ContinuedFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  // From now on the folder stays where it is until commit().
  void keep() { keep_ = true; }
  // Empties the folder, which is worth nothing then.
  void clear();
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  std::unique_ptr<FolderLock> lock_;
  bool keep_ = false;
};

// A file mapped into memory, read-only.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const char* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  std::filesystem::path path_;
  const char* data_ = nullptr;
  uint64_t size_ = 0;
};

// Does a process hold the folder's lock? Writes nothing.
bool is_locked(const std::filesystem::path& folder);

}  // namespace depthroute
