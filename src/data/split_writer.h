// What prepare writes of one side of the split: its shards and, where documents have identifiers, those.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/token_shard.h"
#include "io/file.h"

namespace depthroute {

// The tokens of some documents of one side, in their order.
struct EncodedDocuments {
  std::vector<uint16_t> tokens;
  std::vector<int64_t> token_lengths;  // see SplitRecord
  std::string ids;                     // the lines of the file of identifiers

  void add(const std::vector<int32_t>& document);
};

class SplitWriter {
 public:
  // `record`: of an earlier writer's save(), to go on behind it, or one without shards. RunError where the files are
  // not as it says.
  SplitWriter(const std::filesystem::path& folder, Split split, int64_t tokens_per_shard, bool with_ids,
              const SplitRecord& record);
  void write(const EncodedDocuments& documents);
  // Flushes all to the disk, and puts tokens, lengths, shards and identifiers into the record.
  void save(SplitRecord& record);
  // The same at the end.
  void finish(SplitRecord& record);

 private:
  std::filesystem::path folder_;
  ShardWriter shards_;
  std::vector<int64_t> token_lengths_;
  std::string ids_name_;
  std::unique_ptr<GrowingFile> ids_;
};

}  // namespace depthroute
