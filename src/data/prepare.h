// From documents to a folder of tokens: split, tokenizer, shards, manifest.
//
// The inputs are read twice. The first pass counts and samples (the tokenizer must be learned on the training split
// alone), the second encodes and writes. Both hold a bounded amount of text. The folder appears at once, when
// everything is in it; its bytes depend on the inputs, their order and the options, not on the number of threads.
//
// Until then all is in .NAME.unfinished beside it. A call with the same inputs and options that finds the second pass
// begun there goes on after the last document that was saved (the documents before are read again, which is fast, but
// not encoded), and ends in the same bytes as an unbroken one. The first pass takes little time and starts again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "data/document_reader.h"
#include "data/manifest.h"
#include "data/split.h"

namespace depthroute {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;
  DocumentOptions documents;
  SplitRule split;
  int64_t vocabulary_size = 32000;
  std::filesystem::path tokenizer;  // a model to use as it is; empty: train one of vocabulary_size
  int64_t sample_bytes = 0;         // text to train the tokenizer on; 0: 512 bytes a piece, between 1 and 16 MiB
  int64_t tokens_per_shard = 100'000'000;
  int threads = 1;
  bool deduplicate = false;                        // leave out all but the first of documents with the same text
  int64_t deduplicate_bytes = int64_t{512} << 20;  // of memory for the table that this takes, see DocumentSet
  double save_interval = 20;                       // seconds between the states that a later call continues from
  bool overwrite = false;                          // replace a folder that prepare made from something else
};

struct PrepareResult {
  Manifest manifest;
  bool already_done = false;  // the folder was there, made from the same inputs with the same options
};

// InputError for bad inputs or options, a corpus too small for its split or vocabulary, and an output folder that
// holds something else. RunError where writing fails or an input changes meanwhile (it is named).
PrepareResult prepare(const PrepareOptions& options);

}  // namespace depthroute
