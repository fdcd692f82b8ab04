#include "data/document_set.h"

#include <bit>
#include <utility>

#include "io/error.h"

namespace depthroute {
namespace {

constexpr size_t kFirstSlots = 1024;

size_t slots_within(int64_t bytes) {
  return std::bit_floor(static_cast<size_t>(bytes) / sizeof(DocumentHash));
}

size_t limit_of(size_t slots) {
  return slots / 4 * 3;
}

}  // namespace

DocumentSet::DocumentSet(int64_t max_bytes) : max_bytes_(max_bytes), slots_(kFirstSlots) {
  if (max_bytes < static_cast<int64_t>(kFirstSlots * sizeof(DocumentHash)))
    fail_input("{} bytes are too few for a table of documents", max_bytes);
}

int64_t DocumentSet::capacity(int64_t max_bytes) {
  return static_cast<int64_t>(limit_of(slots_within(max_bytes)));
}

// Where the hash is, or the empty slot where it belongs. The hash's own bits are as good as random.
size_t DocumentSet::place_of(DocumentHash hash) const {
  size_t place = hash.low & (slots_.size() - 1);
  while (!(slots_[place] == hash) && !(slots_[place] == DocumentHash{})) place = (place + 1) & (slots_.size() - 1);
  return place;
}

bool DocumentSet::insert(DocumentHash hash) {
  if (hash == DocumentHash{}) hash.low = 1;  // zeros mean an empty slot
  size_t place = place_of(hash);
  if (slots_[place] == hash) return false;
  if (count_ == limit_of(slots_.size())) {
    grow();
    place = place_of(hash);
  }
  slots_[place] = hash;
  ++count_;
  return true;
}

void DocumentSet::grow() {
  if (slots_.size() * 2 > slots_within(max_bytes_)) {
    fail_input("more than {} different documents: their table needs more than {} MiB (--dedup-memory)", count_,
               max_bytes_ >> 20);
  }
  std::vector<DocumentHash> old(slots_.size() * 2);
  std::swap(old, slots_);
  for (DocumentHash hash : old) {
    if (!(hash == DocumentHash{})) slots_[place_of(hash)] = hash;
  }
}

}  // namespace depthroute
