// The documents seen so far, known by their hashes, in a table of bounded memory: 16 bytes a slot, at most three
// quarters of them in use. Two different documents are taken for one with a probability of n^2 / 2^129.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/split.h"

namespace depthroute {

class DocumentSet {
 public:
  // The table grows up to the largest power of two of slots within `max_bytes`. While it grows, the smaller one
  // before it is there, too.
  explicit DocumentSet(int64_t max_bytes);
  // False where the document is known already. InputError where it is new and the table is full.
  bool insert(DocumentHash hash);
  // Distinct documents a table of `max_bytes` holds.
  static int64_t capacity(int64_t max_bytes);

 private:
  size_t place_of(DocumentHash hash) const;
  void grow();

  int64_t max_bytes_;
  std::vector<DocumentHash> slots_;  // a slot of zeros is empty
  size_t count_ = 0;
};

}  // namespace depthroute
