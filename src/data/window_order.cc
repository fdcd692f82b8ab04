#include "data/window_order.h"

#include <bit>

#include "io/error.h"

namespace depthroute {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
  return value ^ (value >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

}  // namespace

WindowOrder::WindowOrder(uint64_t seed, int64_t windows) : seed_(seed), windows_(windows) {
  if (windows <= 0) fail_input("the data hold no whole window: they are shorter than the context length");
  half_bits_ = (std::bit_width(static_cast<uint64_t>(windows - 1)) + 1) / 2;
}

WindowOrder::Keys WindowOrder::epoch_keys(int64_t epoch) const {
  Keys keys{};
  uint64_t state = mix(mix(seed_ + kGolden) + static_cast<uint64_t>(epoch));
  for (uint64_t& key : keys) key = mix(state += kGolden);
  return keys;
}

uint64_t WindowOrder::permute(uint64_t value, const Keys& keys) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t key : keys) {
    uint64_t next = left ^ (mix(right + key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t WindowOrder::at(int64_t index) const {
  const Keys keys = epoch_keys(index / windows_);
  uint64_t value = static_cast<uint64_t>(index % windows_);
  do {
    value = permute(value, keys);
  } while (value >= static_cast<uint64_t>(windows_));
  return static_cast<int64_t>(value);
}

}  // namespace depthroute
