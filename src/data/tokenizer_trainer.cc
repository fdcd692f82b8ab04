#include "data/tokenizer_trainer.h"

#include <sentencepiece_trainer.h>

#include <array>
#include <cctype>
#include <iterator>
#include <unordered_map>

#include "data/utf8.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace {

// <unk>, <s>, </s> and 256 bytes, and one piece to learn.
constexpr int64_t kSmallestVocabulary = 260, kLargestVocabulary = 65536;
// SentencePiece counts positions within a word in 16 bits.
constexpr size_t kLongestSentence = 4096;
// Characters that SentencePiece uses as marks (tab, U+2581, U+2585) or refuses (NUL): it would leave out the whole
// sentence. They are not learned and stay bytes.
constexpr std::array<std::string_view, 4> kReserved = {"\t", std::string_view("\0", 1), "\xE2\x96\x81",
                                                       "\xE2\x96\x85"};

size_t find_reserved(std::string_view text, size_t& length) {
  size_t first = std::string_view::npos;
  for (std::string_view mark : kReserved) {
    size_t at = text.find(mark);
    if (at >= first) continue;
    first = at;
    length = mark.size();
  }
  return first;
}

// Cuts before a space where there is one, so that few words are divided.
void add_sentences(std::string_view text, std::vector<std::string>& sentences) {
  while (text.size() > kLongestSentence) {
    size_t cut = text.rfind(' ', kLongestSentence);
    if (cut == std::string_view::npos || cut == 0) cut = utf8_prefix(text, kLongestSentence);
    sentences.emplace_back(text.substr(0, cut));
    text.remove_prefix(cut);
  }
  if (!text.empty()) sentences.emplace_back(text);
}

std::vector<std::string> sentences_of(const std::vector<std::string>& documents) {
  std::vector<std::string> sentences;
  for (std::string_view text : documents) {
    size_t length = 0;
    for (size_t at; (at = find_reserved(text, length)) != std::string_view::npos; text.remove_prefix(at + length)) {
      add_sentences(text.substr(0, at), sentences);
    }
    add_sentences(text, sentences);
  }
  return sentences;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& sentences_;
  size_t next_ = 0;
};

// The number that follows `mark` in the text, 0 where there is none.
int64_t number_after(const std::string& text, std::string_view mark) {
  size_t at = text.find(mark);
  if (at == std::string::npos) return 0;
  int64_t value = 0;
  for (at += mark.size(); at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); ++at) {
    value = value * 10 + (text[at] - '0');
  }
  return value;
}

[[noreturn]] void explain_failure(const std::string& message, int64_t vocabulary_size) {
  if (int64_t largest = number_after(message, "set it to a value <= "); largest > 0) {
    fail_input(
        "a vocabulary of {} is too large for this text: it supports {} at most; set --vocabulary-size {} or give "
        "more text",
        vocabulary_size, largest, largest);
  }
  if (int64_t characters = number_after(message, format_text("required_chars. {} vs ", vocabulary_size));
      characters > 0) {
    fail_input(
        "a vocabulary of {} is too small for this text: its frequent characters alone need {}; set "
        "--vocabulary-size "
        "above that",
        vocabulary_size, characters);
  }
  fail_input("SentencePiece cannot train a tokenizer of {} pieces on this text: {}", vocabulary_size, message);
}

}  // namespace

void DocumentSampler::add(uint64_t key, std::string_view text) {
  if (total_ >= limit_ && (documents_.empty() || key > documents_.rbegin()->first)) return;
  documents_.emplace(key, text);
  total_ += text.size();
  while (!documents_.empty() && total_ - documents_.rbegin()->second.size() >= limit_) {
    total_ -= documents_.rbegin()->second.size();
    documents_.erase(std::prev(documents_.end()));
  }
}

std::vector<std::string> DocumentSampler::take() {
  std::vector<std::string> texts;
  while (!documents_.empty()) {
    texts.push_back(std::move(documents_.extract(documents_.begin()).value().second));
  }
  if (total_ > limit_) {
    std::string& last = texts.back();
    last.resize(utf8_prefix(last, last.size() - (total_ - limit_)));
  }
  total_ = 0;
  return texts;
}

std::string train_tokenizer(const std::vector<std::string>& documents, int64_t vocabulary_size) {
  if (vocabulary_size < kSmallestVocabulary || vocabulary_size > kLargestVocabulary) {
    fail_input("a vocabulary of {} is not possible: it must be between {} and {}", vocabulary_size,
               kSmallestVocabulary, kLargestVocabulary);
  }
  const std::unordered_map<std::string, std::string> options = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary_size)},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"byte_fallback", "true"},
      {"required_chars",
       "\xE2\x96\x81"},  // a space must be a piece even where it is rare: its bytes would mean U+2581
      {"allow_whitespace_only_pieces", "true"},
      {"split_digits", "true"},  // as Llama: numbers read digit by digit
      {"max_sentence_length", std::to_string(kLongestSentence + 4)},
      {"num_threads", "1"},
      {"minloglevel", "4"},  // its progress and errors go to standard error otherwise
      {"model_prefix", ""},
  };
  std::vector<std::string> sentences = sentences_of(documents);
  if (sentences.empty()) fail_input("the training split holds no text to learn a vocabulary from");
  sentences.emplace_back(" ");  // the trainer ends the program over a required character that it has not seen
  Sentences iterator(sentences);
  std::string model;
  auto status = sentencepiece::SentencePieceTrainer::Train(options, &iterator, &model);
  if (!status.ok()) explain_failure(status.ToString(), vocabulary_size);
  return model;
}

}  // namespace depthroute
