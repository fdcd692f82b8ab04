// The documents of a corpus in their order, with the side of the split each falls on, without exact duplicates where
// those are to be left out: what both passes of prepare see.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/document_reader.h"
#include "data/document_set.h"
#include "data/manifest.h"
#include "data/split.h"

namespace depthroute {

class SplitReader {
 public:
  // `duplicate_table_bytes`: of the table of documents seen, 0 to keep duplicates.
  SplitReader(const std::vector<InputFile>& files, const DocumentOptions& documents, const SplitRule& rule,
              int64_t duplicate_table_bytes);

  // The next document that is kept; false at the end. InputError as DocumentReader and DocumentSet.
  bool next();
  Document& document() { return document_; }
  Split split() const { return split_; }
  uint64_t key() const { return key_; }

  // Documents read so far, those left out included.
  int64_t read() const { return read_; }
  // Documents kept so far.
  int64_t documents() const;
  // Of what was read so far: documents, bytes, hash and duplicates of each side, no tokens.
  std::array<SplitRecord, 3> records() const;

 private:
  SplitRule rule_;
  std::unique_ptr<DocumentReader> reader_;
  std::optional<DocumentSet> seen_;
  std::array<SplitRecord, 3> records_;
  std::array<DocumentSetHash, 3> hashes_;
  Document document_;
  Split split_ = Split::kTrain;
  uint64_t key_ = 0;
  int64_t read_ = 0;
};

}  // namespace depthroute
