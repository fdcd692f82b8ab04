// safetensors: an 8-byte little-endian header length, a JSON header (name -> dtype, shape, byte range), then the
// tensors' bytes. https://huggingface.co/docs/safetensors. This file knows bytes and shapes only; model/ turns them
// into tensors.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "io/file.h"

namespace depthroute {

struct SafetensorsEntry {
  std::string dtype;           // "F64", "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;  // [] is a scalar
  const char* data = nullptr;
  uint64_t size = 0;  // bytes
};

// A file mapped into memory; entries point into it. InputError, naming the file and the tensor, for anything that
// is not a well-formed file: truncated, an absurd header, ranges that overlap, leave gaps or disagree with dtype
// and shape.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  bool contains(const std::string& name) const { return entries_.contains(name); }
  // InputError where there is no such tensor.
  const SafetensorsEntry& entry(const std::string& name) const;

 private:
  MappedFile file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafetensorsEntry> entries_;
};

// Writes the file as a whole, tensors in the order of their names. An entry whose data is null (of tensors that are
// elsewhere) is asked for when its turn comes: `fetch` returns its bytes, which are done with at the next call.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<const char*(const std::string& name)>& fetch = {});

// Bytes of one element; 0 for an unknown dtype.
uint64_t safetensors_element_size(const std::string& dtype);

}  // namespace depthroute
