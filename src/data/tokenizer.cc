#include "data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>

#include "io/checksum.h"
#include "io/error.h"
#include "io/file.h"

namespace depthroute {
namespace {

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr int kMaximumSize = 1 << 16;
constexpr uint64_t kMaximumModelBytes = uint64_t{1} << 27;
constexpr size_t kMaximumKnown = size_t{1} << 18, kLongestKnown = 64;
// SentencePiece's memory for one call grows with the text, about a hundred bytes a byte. Text without any space is
// cut at this length.
constexpr size_t kLongestSegment = size_t{1} << 16;

std::string surface_of(std::string_view piece) {
  std::string surface;
  for (size_t at; (at = piece.find(kSpacePiece)) != std::string_view::npos;
       piece.remove_prefix(at + kSpacePiece.size())) {
    surface.append(piece.substr(0, at)).push_back(' ');
  }
  return surface.append(piece);
}

bool has_inner_space(std::string_view piece) {
  size_t first = 0;
  while (piece.substr(first).starts_with(kSpacePiece)) first += kSpacePiece.size();
  return piece.find(kSpacePiece, first) != std::string_view::npos;
}

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return from_bytes(read_file(path, kMaximumModelBytes), path.string());
}

Tokenizer Tokenizer::from_bytes(std::string bytes, const std::string& name) {
  Tokenizer tokenizer;
  tokenizer.processor_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto& processor = *tokenizer.processor_;
  if (bytes.empty() || !tokenizer.processor_->LoadFromSerializedProto(bytes).ok() ||
      processor.GetPieceSize() == 0) {
    fail_input("'{}' is not a SentencePiece model", name);
  }
  if (processor.GetPieceSize() > kMaximumSize) {
    fail_input("'{}' has {} pieces: a token is 16 bits, so {} at most", name, processor.GetPieceSize(),
               kMaximumSize);
  }
  tokenizer.hash_ = checksum(bytes);
  tokenizer.bytes_ = std::move(bytes);
  tokenizer.separator_ = processor.eos_id();
  if (tokenizer.separator_ < 0) fail_input("'{}' has no </s>, the token that separates documents", name);
  tokenizer.split_before_spaces_ = true;
  tokenizer.byte_ids_.assign(256, -1);
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    if (processor.IsByte(id)) {  // "<0x2A>"
      int value = std::stoi(piece.substr(3, 2), nullptr, 16);
      tokenizer.byte_ids_[static_cast<size_t>(value)] = id;
      tokenizer.surfaces_.emplace_back(1, static_cast<char>(value));
    } else if (processor.IsControl(id)) {
      tokenizer.surfaces_.emplace_back();
    } else if (processor.IsUnknown(id)) {
      tokenizer.surfaces_.emplace_back("\xEF\xBF\xBD");
    } else {
      tokenizer.surfaces_.push_back(surface_of(piece));
      if (has_inner_space(piece)) tokenizer.split_before_spaces_ = false;
    }
  }
  tokenizer.check_lossless(name);
  return tokenizer;
}

void Tokenizer::check_lossless(const std::string& name) const {
  for (int32_t id : byte_ids_) {
    if (id < 0) fail_input("'{}' has no byte fallback, so it cannot encode every text", name);
  }
  // Single characters and spaces in every position that a normaliser or a dummy prefix would change.
  for (std::string_view probe :
       {"a", " a", "a ", "  a  b", "\ta\r\nb\n", "\xEF\xAC\x81", "\xEF\xBD\x81", "e\xCC\x81", "A"}) {
    if (decode(encode(probe)) != probe) {
      fail_input(
          "'{}' changes the text it encodes: train it with normalization_rule_name=identity, "
          "remove_extra_whitespaces=false, add_dummy_prefix=false",
          name);
    }
  }
}

size_t Tokenizer::segment_length(std::string_view text) const {
  size_t end = std::min(text.size(), kLongestSegment);
  if (split_before_spaces_) {
    for (size_t i = 1; i < end; ++i) {
      if (text[i] == ' ' && text[i - 1] != ' ') return i;
    }
  }
  if (end == text.size()) return end;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return end;
}

void Tokenizer::encode_segment(std::string_view segment, std::vector<int32_t>& ids) const {
  std::vector<int> part;
  while (!segment.empty()) {
    size_t special = segment.find(kSpacePiece);
    std::string_view plain = segment.substr(0, special);
    if (!plain.empty()) {
      auto status = processor_->Encode({plain.data(), plain.size()}, &part);
      if (!status.ok()) fail_run("SentencePiece cannot encode: {}", status.ToString());
      ids.insert(ids.end(), part.begin(), part.end());
    }
    segment.remove_prefix(plain.size());
    if (segment.empty()) break;
    for (char byte : kSpacePiece) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    segment.remove_prefix(kSpacePiece.size());
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t length = segment_length(text);
    encode_segment(text.substr(0, length), ids);
    text.remove_prefix(length);
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) {
    if (id < 0 || id >= size()) fail_input("token {} is outside the vocabulary of {}", id, size());
    text += surfaces_[static_cast<size_t>(id)];
  }
  return text;
}

Json Tokenizer::hugging_face_config() const {
  const auto piece = [&](int id) { return id < 0 ? Json() : Json(processor_->IdToPiece(id)); };
  return json_object({{"tokenizer_class", "LlamaTokenizer"},
                      {"unk_token", piece(processor_->unk_id())},
                      {"bos_token", piece(processor_->bos_id())},
                      {"eos_token", piece(processor_->eos_id())},
                      {"add_bos_token", false},
                      {"add_eos_token", false},
                      {"add_prefix_space", false},
                      {"split_special_tokens", true},
                      {"clean_up_tokenization_spaces", false},
                      {"legacy", false}});
}

void TokenEncoder::encode(std::string_view text, std::vector<int32_t>& ids) {
  while (!text.empty()) {
    std::string_view segment = text.substr(0, tokenizer_.segment_length(text));
    text.remove_prefix(segment.size());
    auto known = known_.find(segment);
    if (known != known_.end()) {
      auto begin = known_ids_.begin() + known->second.begin;
      ids.insert(ids.end(), begin, begin + known->second.count);
      continue;
    }
    size_t before = ids.size();
    tokenizer_.encode_segment(segment, ids);
    if (known_.size() == kMaximumKnown || segment.size() > kLongestKnown) continue;
    known_.emplace(segment,
                   Span{static_cast<uint32_t>(known_ids_.size()), static_cast<uint32_t>(ids.size() - before)});
    known_ids_.insert(known_ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
  }
}

}  // namespace depthroute
