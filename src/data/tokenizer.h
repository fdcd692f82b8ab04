// Text to token ids and back, exactly: decode(encode(text)) == text for every valid UTF-8 text, NUL, tabs, runs of
// spaces and line ends included.
//
// The model is SentencePiece BPE with byte fallback, as Hugging Face's LlamaTokenizer loads it: <unk> 0, <s> 1,
// </s> 2, the bytes <0x00>..<0xFF>, then pieces. SentencePiece writes a space as U+2581 within pieces, so that a
// real U+2581 of the text would come back as a space; here it is encoded as its three bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/json.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace depthroute {

class Tokenizer {
 public:
  // InputError where the file is missing or no SentencePiece model, or where the model is not lossless
  // (normalisation, a dummy prefix, no byte fallback), has no </s>, or has more pieces than a 16-bit token can
  // name.
  static Tokenizer load(const std::filesystem::path& path);
  // The same of a model in memory; `name` stands in messages.
  static Tokenizer from_bytes(std::string bytes, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The text must be valid UTF-8. Safe to call from several threads.
  std::vector<int32_t> encode(std::string_view text) const;
  // The bytes the ids stand for; they need not be whole characters. The separator and other control tokens stand
  // for nothing. InputError for an id outside [0, size()).
  std::string decode(std::span<const int32_t> ids) const;

  int32_t size() const { return static_cast<int32_t>(surfaces_.size()); }
  // </s>: it follows every document.
  int32_t separator() const { return separator_; }
  // The checksum of the model file.
  const std::string& hash() const { return hash_; }
  const std::string& bytes() const { return bytes_; }
  // What Hugging Face's AutoTokenizer and LlamaTokenizer need beside the model (tokenizer_config.json) to give the same
  // ids: no dummy prefix, nothing added, and a "</s>" within a text is text.
  Json hugging_face_config() const;

 private:
  friend class TokenEncoder;
  Tokenizer();
  void check_lossless(const std::string& name) const;
  // The length of the first segment of a text, which is encoded by itself: up to the next word, since no piece of
  // the vocabulary reaches into it, or up to a limit where text goes on without spaces.
  size_t segment_length(std::string_view text) const;
  void encode_segment(std::string_view segment, std::vector<int32_t>& ids) const;

  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  std::string bytes_, hash_;
  std::vector<std::string> surfaces_;  // the bytes each id stands for
  std::vector<int32_t> byte_ids_;      // the id of each byte
  int32_t separator_ = -1;
  bool split_before_spaces_ = false;  // no piece has a space after another character
};

// Encodes much text of one kind quickly: the ids of segments (words) seen before are kept, up to a bounded number.
// One per thread. Same ids as Tokenizer::encode.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Appends the ids of the text.
  void encode(std::string_view text, std::vector<int32_t>& ids);

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct Span {
    uint32_t begin, count;
  };

  const Tokenizer& tokenizer_;
  std::unordered_map<std::string, Span, Hash, std::equal_to<>> known_;
  std::vector<int32_t> known_ids_;
};

}  // namespace depthroute
