#include "data/split.h"

#include <xxhash.h>

#include <charconv>
#include <cmath>

#include "io/error.h"
#include "io/format.h"

namespace depthroute {

std::string_view name_of(Split split) {
  constexpr std::array<std::string_view, 3> kNames = {"train", "val", "test"};
  return kNames[static_cast<size_t>(split)];
}

Split split_named(std::string_view name) {
  for (Split split : kSplits) {
    if (name_of(split) == name) return split;
  }
  fail_input("unknown split '{}': it is one of train, val, test", name);
}

void SplitRule::check() const {
  double sum = 0;
  for (double fraction : fractions) {
    if (!(fraction >= 0 && fraction <= 1)) fail_input("the split's fraction {} is not between 0 and 1", fraction);
    sum += fraction;
  }
  if (std::abs(sum - 1) > 1e-9) fail_input("the split's fractions add up to {}, not to 1", sum);
  if (fractions[0] == 0) fail_input("the split leaves nothing to train on: its first fraction must be above 0");
}

uint64_t SplitRule::key(std::string_view text) const {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

Split SplitRule::split_of(uint64_t key) const {
  double position = static_cast<double>(key >> 11) * 0x1p-53;  // the 53 bits a double holds exactly
  if (position < fractions[2]) return Split::kTest;
  return position < fractions[2] + fractions[1] ? Split::kValidation : Split::kTrain;
}

std::array<double, 3> parse_fractions(std::string_view text) {
  std::array<double, 3> fractions{};
  const char* at = text.data();
  const char* end = at + text.size();
  for (size_t i = 0; i < 3; ++i) {
    auto [next, error] = std::from_chars(at, end, fractions[i]);
    bool followed_well = i < 2 ? next != end && *next == ',' : next == end;
    if (error != std::errc() || !followed_well) {
      fail_input("'{}' is not a split: give the fractions of train, val and test, for example 0.98,0.01,0.01",
                 text);
    }
    at = next + 1;
  }
  return fractions;
}

DocumentHash document_hash(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

void DocumentSetHash::add(DocumentHash hash) {
  sum_.low += hash.low;
  sum_.high += hash.high + (sum_.low < hash.low ? 1 : 0);
}

std::string DocumentSetHash::hex() const {
  return format_text("{:016x}{:016x}", sum_.high, sum_.low);
}

}  // namespace depthroute
