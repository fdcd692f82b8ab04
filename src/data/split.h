// The side of the split a document falls on is a function of its text and a seed alone: it does not depend on the
// order of files or documents, stays when the corpus grows, and keeps exact duplicates on one side.
//
// XXH3-64 of the text, seeded, over 2^64 is a number in [0, 1): below the test fraction it is test, below test +
// validation it is validation, and train above.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace depthroute {

enum class Split { kTrain, kValidation, kTest };
inline constexpr std::array<Split, 3> kSplits = {Split::kTrain, Split::kValidation, Split::kTest};

// "train", "val", "test": the names of files, manifest and command line. InputError for another name.
std::string_view name_of(Split split);
Split split_named(std::string_view name);

struct SplitRule {
  uint64_t seed = 0;
  // Train, validation, test.
  std::array<double, 3> fractions = {0.98, 0.01, 0.01};

  // InputError unless all are in [0, 1], train is above 0 and the sum is 1.
  void check() const;
  uint64_t key(std::string_view text) const;
  Split split_of(uint64_t key) const;
};

// "0.98,0.01,0.01" as fractions. InputError where it is not three numbers.
std::array<double, 3> parse_fractions(std::string_view text);

// XXH3-128 of a document's text.
struct DocumentHash {
  uint64_t low = 0, high = 0;
  bool operator==(const DocumentHash&) const = default;
};
DocumentHash document_hash(std::string_view text);

// A hash of a multiset of documents: the sum, modulo 2^128, of their hashes. It does not depend on their order,
// and two equal documents do not cancel.
class DocumentSetHash {
 public:
  void add(DocumentHash hash);
  // 32 hexadecimal digits.
  std::string hex() const;

 private:
  DocumentHash sum_;
};

}  // namespace depthroute
