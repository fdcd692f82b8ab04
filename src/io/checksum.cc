#include "io/checksum.h"

#include <xxhash.h>

#include "io/file.h"
#include "io/format.h"

namespace depthroute {

std::string checksum(std::string_view bytes) {
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return format_text("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string file_checksum(const std::filesystem::path& path) {
  return checksum(MappedFile(path).bytes());
}

}  // namespace depthroute
