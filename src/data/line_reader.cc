#include "data/line_reader.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {
constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
}  // namespace

// zlib's gzread passes a file that is not gzip through as it is.
struct LineReader::Stream {
  gzFile file;
  ~Stream() {
    if (file != nullptr) gzclose(file);
  }
};

LineReader::LineReader(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  if (fs::is_directory(path_, error)) fail_input("cannot read '{}': it is a folder", path_.string());
  stream_.reset(new Stream{gzopen(path_.c_str(), "rb")});
  if (stream_->file == nullptr) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
  gzbuffer(stream_->file, kBlockBytes);
}

LineReader::~LineReader() = default;

std::string LineReader::where() const {
  return format_text("{}:{}", path_.string(), line_number_);
}

bool LineReader::fill() {
  block_.resize(kBlockBytes);
  position_ = 0;
  int got = gzread(stream_->file, block_.data(), kBlockBytes);
  int code = Z_OK;
  const char* message = gzerror(stream_->file, &code);
  block_.resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (code == Z_BUF_ERROR && got > 0)
    return true;  // a truncated stream: first what can be read of it, so that the line is known
  if (code == Z_BUF_ERROR) {
    fail_input("{}: the gzip file ends too early after line {}: it is truncated", path_.string(), line_number_);
  }
  if (code == Z_ERRNO) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
  if (code != Z_OK && code != Z_STREAM_END) {
    fail_input("{}: the gzip file is damaged after line {}: {}", path_.string(), line_number_, message);
  }
  return !block_.empty();
}

std::string_view LineReader::head() {
  if (block_.empty()) fill();
  return block_;
}

bool LineReader::next(std::string& line) {
  line.clear();
  while (position_ < block_.size() || fill()) {
    size_t end = block_.find('\n', position_);
    size_t stop = end == std::string::npos ? block_.size() : end + 1;
    line.append(block_, position_, stop - position_);
    position_ = stop;
    if (line.size() > kMaximumLineBytes) {
      fail_input("{}:{}: the line is longer than {} bytes: is this a text file?", path_.string(), line_number_ + 1,
                 kMaximumLineBytes);
    }
    if (end != std::string::npos) break;
  }
  if (line.empty()) return false;
  ++line_number_;
  if (line_number_ == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  return true;
}

}  // namespace depthroute
