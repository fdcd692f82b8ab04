// The order in which a run sees the windows of its data: within an epoch each window once, in an order that depends
// on the seed and the epoch alone. at() takes constant time and memory, so a resumed run continues at any index and
// a corpus may have any size.
//
// The permutation is a Feistel network of four rounds over the smallest even number of bits that holds every
// window, with cycle walking: a value outside [0, windows) is permuted again until it falls inside, fewer than four
// times on average (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).
#pragma once
#include <array>
#include <cstdint>

namespace depthroute {

class WindowOrder {
 public:
  // InputError unless windows > 0.
  WindowOrder(uint64_t seed, int64_t windows);

  // The window read at position `index` >= 0 of the run, in [0, windows).
  int64_t at(int64_t index) const;
  int64_t windows() const { return windows_; }

 private:
  using Keys = std::array<uint64_t, 4>;
  Keys epoch_keys(int64_t epoch) const;
  uint64_t permute(uint64_t value, const Keys& keys) const;

  uint64_t seed_;
  int64_t windows_;
  int half_bits_;
};

}  // namespace depthroute
