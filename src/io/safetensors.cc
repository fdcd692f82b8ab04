#include "io/safetensors.h"

#include <algorithm>
#include <cstring>

#include "io/error.h"
#include "io/format.h"
#include "io/json.h"

namespace depthroute {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation

// The number of bytes that dtype and shape ask for; the product is checked, since a header may hold any number.
uint64_t expected_size(const SafetensorsEntry& entry, const std::string& where) {
  uint64_t size = safetensors_element_size(entry.dtype);
  if (size == 0) fail_input("{}: unknown dtype '{}'", where, entry.dtype);
  for (int64_t extent : entry.shape) {
    if (extent < 0) fail_input("{}: negative extent {} in its shape", where, extent);
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(extent), &size))
      fail_input("{}: its shape overflows", where);
  }
  return size;
}

// Tensors must fill the data exactly, one after another: a gap or an overlap is damage, or something hidden.
void check_layout(const std::map<std::string, SafetensorsEntry>& entries, const MappedFile& file,
                  uint64_t data_begin) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : entries) {
    auto begin = static_cast<uint64_t>(entry.data - file.data());
    ranges.emplace_back(begin, begin + entry.size);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t next = data_begin;
  for (auto [begin, end] : ranges) {
    if (begin != next)
      fail_input("'{}': its tensors overlap or leave a gap at byte {}", file.path().string(), next);
    next = end;
  }
  if (next != file.size()) {
    fail_input("'{}': {} bytes long, but its header describes {}", file.path().string(), file.size(), next);
  }
}

}  // namespace

uint64_t safetensors_element_size(const std::string& dtype) {
  static const std::map<std::string, uint64_t> sizes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4},  {"I32", 4}, {"U32", 4}, {"F16", 2},
      {"I16", 2}, {"U16", 2}, {"BF16", 2}, {"BOOL", 1}, {"U8", 1},  {"I8", 1}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  std::string where = format_text("'{}'", path.string());
  uint64_t header_size = 0;
  if (file_.size() < 8) fail_input("{}: {} bytes long, too short for a safetensors file", where, file_.size());
  std::memcpy(&header_size, file_.data(), 8);
  if (header_size > kMaxHeader || header_size > file_.size() - 8) {
    fail_input("{}: not a safetensors file, or truncated (header of {} bytes in a file of {})", where, header_size,
               file_.size());
  }
  Json header;
  try {
    header = Json::parse(file_.data() + 8, file_.data() + 8 + header_size);
  } catch (const nlohmann::json::exception&) {
    fail_input("{}: its safetensors header is not JSON", where);
  }
  if (!header.is_object()) fail_input("{}: its safetensors header is not an object", where);
  uint64_t data_begin = 8 + header_size, data_size = file_.size() - data_begin;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = json_get<std::map<std::string, std::string>>(header, name, where);
      continue;
    }
    std::string tensor = format_text("{}, tensor '{}'", where, name);
    SafetensorsEntry entry{.dtype = json_get<std::string>(value, "dtype", tensor),
                           .shape = json_get<std::vector<int64_t>>(value, "shape", tensor)};
    auto range = json_get<std::vector<uint64_t>>(value, "data_offsets", tensor);
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_size) {
      fail_input("{}: its bytes lie outside the file (truncated?)", tensor);
    }
    entry.data = file_.data() + data_begin + range[0];
    entry.size = range[1] - range[0];
    if (expected_size(entry, tensor) != entry.size)
      fail_input("{}: {} bytes do not fit its dtype and shape", tensor, entry.size);
    if (!entries_.emplace(name, entry).second) fail_input("{}: named twice", tensor);
  }
  check_layout(entries_, file_, data_begin);
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  auto found = entries_.find(name);
  if (found == entries_.end()) fail_input("'{}': no tensor '{}'", path().string(), name);
  return found->second;
}

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<const char*(const std::string& name)>& fetch) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, entry] : entries) {
    header[name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {offset, offset + entry.size}}};
    offset += entry.size;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // keeps the tensors aligned
  uint64_t size = text.size();
  AtomicFile file(path);
  file.write(&size, 8);
  file.write(text);
  for (const auto& [name, entry] : entries) {
    file.write(entry.data == nullptr && entry.size > 0 ? fetch(name) : entry.data, entry.size);
  }
  file.commit();
}

}  // namespace depthroute
