#include "data/line_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <vector>

#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {
constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
}  // namespace

bool file_begins_with(const fs::path& path, std::string_view bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string head(bytes.size(), '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return file.gcount() == static_cast<std::streamsize>(head.size()) && head == bytes;
}

// The decompressed bytes of a file, a block at a time.
class LineReader::Stream {
 public:
  virtual ~Stream() = default;
  // Up to one block, empty at the end. InputError, with "after line N", where the file is damaged or cannot be read.
  virtual void read(std::string& block, int64_t line_number) = 0;
};

// zlib's gzread passes a file that is not gzip through as it is.
class LineReader::GzipStream : public Stream {
 public:
  explicit GzipStream(const fs::path& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
    gzbuffer(file_, kBlockBytes);
  }
  ~GzipStream() override { gzclose(file_); }

  void read(std::string& block, int64_t line_number) override {
    block.resize(kBlockBytes);
    int got = gzread(file_, block.data(), kBlockBytes);
    int code = Z_OK;
    const char* message = gzerror(file_, &code);
    block.resize(got > 0 ? static_cast<size_t>(got) : 0);
    if (code == Z_BUF_ERROR && got > 0)
      return;  // a truncated stream: first what can be read of it, so that the line is known
    if (code == Z_BUF_ERROR) {
      fail_input("{}: the gzip file ends too early after line {}: it is truncated", path_.string(), line_number);
    }
    if (code == Z_ERRNO) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
    if (code != Z_OK && code != Z_STREAM_END) {
      fail_input("{}: the gzip file is damaged after line {}: {}", path_.string(), line_number, message);
    }
  }

 private:
  fs::path path_;
  gzFile file_;
};

class LineReader::ZstdStream : public Stream {
 public:
  explicit ZstdStream(const fs::path& path)
      : path_(path),
        file_(std::fopen(path.c_str(), "rb")),
        context_(ZSTD_createDStream()),
        input_(ZSTD_DStreamInSize()) {
    if (file_ == nullptr) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
  }
  ~ZstdStream() override {
    ZSTD_freeDStream(context_);
    if (file_ != nullptr) std::fclose(file_);
  }

  void read(std::string& block, int64_t line_number) override {
    block.resize(kBlockBytes);
    ZSTD_outBuffer out = {block.data(), block.size(), 0};
    while (out.pos == 0) {
      // Without more input the decoder may still hold output, unless a frame has just ended.
      const bool more = taken_ < given_ || refill();
      if (!more && frame_rest_ == 0) break;
      ZSTD_inBuffer in = {input_.data(), given_, taken_};
      frame_rest_ = ZSTD_decompressStream(context_, &out, &in);
      taken_ = in.pos;
      if (ZSTD_isError(frame_rest_)) {
        fail_input("{}: the zstd file is damaged after line {}: {}", path_.string(), line_number,
                   ZSTD_getErrorName(frame_rest_));
      }
      if (!more && out.pos == 0) break;
    }
    block.resize(out.pos);
    // 0: a frame is complete; otherwise it wants more than the file has.
    if (block.empty() && frame_rest_ != 0) {
      fail_input("{}: the zstd file ends too early after line {}: it is truncated", path_.string(), line_number);
    }
  }

 private:
  bool refill() {
    given_ = std::fread(input_.data(), 1, input_.size(), file_);
    taken_ = 0;
    if (given_ == 0 && std::ferror(file_)) fail_input("cannot read '{}': {}", path_.string(), std::strerror(errno));
    return given_ > 0;
  }

  fs::path path_;
  std::FILE* file_;
  ZSTD_DStream* context_;
  std::vector<char> input_;
  size_t given_ = 0, taken_ = 0, frame_rest_ = 0;
};

LineReader::LineReader(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  if (fs::is_directory(path_, error)) fail_input("cannot read '{}': it is a folder", path_.string());
  if (file_begins_with(path_, "\x28\xB5\x2F\xFD")) {
    stream_ = std::make_unique<ZstdStream>(path_);
  } else {
    stream_ = std::make_unique<GzipStream>(path_);
  }
}

LineReader::~LineReader() = default;

std::string LineReader::where() const {
  return format_text("{}:{}", path_.string(), line_number_);
}

bool LineReader::fill() {
  position_ = 0;
  stream_->read(block_, line_number_);
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
