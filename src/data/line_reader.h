// Lines of a file, plain, gzip or zstd (told by its first bytes), read as a stream: memory holds one line and one block.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace depthroute {

// Told by its content, not by its name. False where it cannot be read.
bool file_begins_with(const std::filesystem::path& path, std::string_view bytes);

class LineReader {
 public:
  // A line, and so a document, is at most this long. What is longer is almost surely not text.
  static constexpr uint64_t kMaximumLineBytes = uint64_t{1} << 28;

  // InputError where the file is missing or unreadable.
  explicit LineReader(std::filesystem::path path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line with its line feed, if it has one (the last may not); false at the end. A byte order mark at the
  // start of the file is left out. InputError naming file and line for a truncated or damaged compressed file, a failing
  // disk and a line that is too long.
  bool next(std::string& line);
  // Of the line last returned, from 1.
  int64_t line_number() const { return line_number_; }
  // "file:line" of the line last returned.
  std::string where() const;
  const std::filesystem::path& path() const { return path_; }
  // The first bytes of the file (decompressed), at most one block. Call it before next().
  std::string_view head();

 private:
  class Stream;
  class GzipStream;
  class ZstdStream;
  bool fill();

  std::filesystem::path path_;
  std::unique_ptr<Stream> stream_;
  std::string block_;
  size_t position_ = 0;
  int64_t line_number_ = 0;
};

}  // namespace depthroute
