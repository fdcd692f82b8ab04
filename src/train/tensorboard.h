// The scalars of a run for TensorBoard: an event file is a sequence of records, each a length, a checksum of it, a
// protocol buffer (tensorflow/core/util/event.proto) and its checksum (CRC32C, "masked"; tensorflow/core/lib/io/record_writer).
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "io/json.h"

namespace depthroute {

class TensorboardFile {
 public:
  // Made anew in `folder`, with a name that says when, where and by which process. Tells TensorBoard to leave out what
  // earlier files have after `step`. RunError where it cannot be written, here as below.
  TensorboardFile(const std::filesystem::path& folder, int64_t step);

  // The numbers of an event of metrics.jsonl, as "EVENT/KEY" at its step.
  void add(const Json& event) const;

 private:
  void write(const std::string& event) const;

  std::filesystem::path path_;
};

// The bytes of a record.
std::string tensorboard_record(std::string_view data);
// CRC-32 by Castagnoli's polynomial (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

}  // namespace depthroute
