// XXH3, 128 bits, as 32 hexadecimal digits: the checksum of every file and the identity of configs, data and
// tokenizers.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace depthroute {

std::string checksum(std::string_view bytes);
// InputError where the file cannot be read.
std::string file_checksum(const std::filesystem::path& path);

}  // namespace depthroute
