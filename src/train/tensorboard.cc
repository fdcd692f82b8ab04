#include "train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

#include "io/file.h"
#include "io/format.h"

namespace depthroute {
namespace {

std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kPolynomial = 0x82f63b78;  // with its bits reversed
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

// Little-endian, as is the machine.
template <typename T>
std::string raw(T value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8U;
}

// Fields of a protocol buffer: a key of number and wire type, then the value.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(uint32_t field, WireType type) {
  return varint(field << 3 | type);
}
std::string message(uint32_t field, const std::string& bytes) {
  return key(field, kLengthDelimited) + varint(bytes.size()) + bytes;
}

// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(int64_t step, const std::string& what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return key(1, kFixed64) + raw(now) + key(2, kVarint) + varint(static_cast<uint64_t>(step)) + what;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = ~uint32_t{0};
  for (char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~crc;
}

std::string tensorboard_record(std::string_view data) {
  const std::string length = raw(static_cast<uint64_t>(data.size()));
  return length + raw(masked_crc(length)) + std::string(data) + raw(masked_crc(data));
}

TensorboardFile::TensorboardFile(const std::filesystem::path& folder, int64_t step) {
  char machine[256] = {};
  gethostname(machine, sizeof(machine) - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  path_ = folder / format_text("events.out.tfevents.{}.{}.{}", seconds.count(), machine, getpid());
  make_folder(folder);
  write(event(0, message(3, "brain.Event:2")));
  // SessionLog: status = 1, of which START = 1.
  write(event(step + 1, message(7, key(1, kVarint) + varint(1))));
}

void TensorboardFile::add(const Json& values) const {
  std::string summary;
  for (const auto& [name, value] : values.items()) {
    if (!value.is_number() || name == "step") continue;
    // Summary: value = 1; of it tag = 1, simple_value = 2.
    const std::string tag = values.at("event").get<std::string>() + "/" + name;
    summary += message(1, message(1, tag) + key(2, kFixed32) + raw(static_cast<float>(value.get<double>())));
  }
  write(event(values.at("step").get<int64_t>(), message(5, summary)));
}

void TensorboardFile::write(const std::string& bytes) const {
  append_bytes(path_, tensorboard_record(bytes));
}

}  // namespace depthroute
