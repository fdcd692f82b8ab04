// Any bytes as a file: a reader gives what the file holds or throws InputError, and nothing else. READ names the reader.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "data/document_reader.h"
#include "data/manifest.h"
#include "data/token_shard.h"
#include "data/utf8.h"
#include "io/error.h"
#include "io/safetensors.h"

namespace depthroute {
namespace fs = std::filesystem;

static void check(bool holds) {
  if (!holds) std::abort();
}

void fuzz_shard(const fs::path& file) {
  const TokenShard shard(file);
  uint64_t sum = 0;
  for (uint16_t token : shard.tokens()) sum += token;
  check(sum <= shard.tokens().size() * uint64_t{65535});
}

void fuzz_manifest(const fs::path& file) {
  const Manifest manifest = manifest_from_json(read_json(file), file.string());
  // What was understood is written and understood alike.
  const std::string text = dump_json(to_json(manifest));
  check(dump_json(to_json(manifest_from_json(Json::parse(text), "again"))) == text);
}

void fuzz_documents(const fs::path& file, DocumentFormat format, const std::string& id_column) {
  auto reader = open_documents({{file, "file"}}, {.format = format, .id_column = id_column});
  for (Document document; reader->next(document);) {
    check(!document.text.empty() && find_invalid_utf8(document.text) == std::string::npos);
    check(find_invalid_utf8(document.id) == std::string::npos);
  }
}

void fuzz_jsonl(const fs::path& file) {
  fuzz_documents(file, DocumentFormat::kJsonl, "id");
}
void fuzz_text(const fs::path& file) {
  fuzz_documents(file, DocumentFormat::kText, "");
}

void fuzz_safetensors(const fs::path& file) {
  const SafetensorsFile tensors(file);
  uint64_t sum = 0;
  for (const auto& [name, entry] : tensors.entries()) {
    for (uint64_t i = 0; i < entry.size; ++i) sum += static_cast<uint8_t>(entry.data[i]);
  }
  check(sum <= fs::file_size(file) * 255);
}

}  // namespace depthroute

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace depthroute;
  // In memory, not on a disk.
  static const fs::path file = "/dev/shm/depthroute-fuzz-" + std::to_string(getpid());
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    READ(file);
  } catch (const InputError&) {
  }
  return 0;
}
