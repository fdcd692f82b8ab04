#include "data/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/split.h"
#include "data/test_support.h"
#include "data/tokenizer_trainer.h"
#include "io/checksum.h"
#include "io/format.h"

namespace depthroute {
namespace {

using std::string_literals::operator""s;

const Tokenizer& tokenizer() {
  static const Tokenizer instance = Tokenizer::from_bytes(train_tokenizer(made_up_documents(3000), 600), "test");
  return instance;
}

std::vector<std::string> hostile_texts() {
  std::vector<std::string> texts = {
      "",
      " ",
      "          leading and trailing     ",
      "\n",
      "\n\n\n  \n \n",
      "\t\tif (x) {\n\t\t\treturn\ty;\n\t\t}\n",
      "CRLF\r\nline\r\n\r\nend\r",
      "\0"s,
      "a\0b\0\0c"s,
      "\x01\x02\x7f\x1b[31m",
      "\u2581",  // SentencePiece's space
      "a\u2581b \u2581\u2581 c\u2581",
      "\u2585 \u2047 \uFFFD \uFEFFbom",  // its other marks
      "<s></s><unk><0x41><pad>",
      "\uFB01 \uFF21 e\u0301 \u00E9 \u1E9B\u0323 \u00A0\u2003\u3000x",  // what NFKC would change
      "\u05E9\u05DC\u05D5\u05DD \u0645\u0631\u062D\u0628\u0627 \u202Ertl\u202C",
      "\U0001F468\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466 \U0001F1E9\U0001F1EA \u2764\uFE0F",
      "\u4E2D\u6587\u6CA1\u6709\u7A7A\u683C \u65E5\u672C\u8A9E\uD55C\uAD6D\uC5B4",
      "\U0010FFFF\uE000\u0300\u0301\u0302",
      "0123456789 3.14159 1e-5",
  };
  for (const std::string& text : made_up_documents(20, 77)) texts.push_back(text);
  return texts;
}

std::string random_unicode(std::mt19937& random) {
  std::string text;
  for (unsigned n = random() % 60; n > 0; --n) {
    uint32_t code = random() % 3 == 0   ? random() % 0x80
                    : random() % 4 == 0 ? 0x2500 + random() % 0x100
                                        : random() % 0x110000;
    if (code >= 0xD800 && code <= 0xDFFF) code = ' ';
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
    } else if (code < 0x10000) {
      text += {static_cast<char>(0xE0 | (code >> 12)), static_cast<char>(0x80 | ((code >> 6) & 63)),
               static_cast<char>(0x80 | (code & 63))};
    } else {
      text += {static_cast<char>(0xF0 | (code >> 18)), static_cast<char>(0x80 | ((code >> 12) & 63)),
               static_cast<char>(0x80 | ((code >> 6) & 63)), static_cast<char>(0x80 | (code & 63))};
    }
  }
  return text;
}

void expect_round_trip(const std::string& text) {
  std::vector<int32_t> ids = tokenizer().encode(text);
  EXPECT_EQ(tokenizer().decode(ids), text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer().separator()), 0) << "text must not hold the separator";
  TokenEncoder encoder(tokenizer());
  std::vector<int32_t> twice;
  encoder.encode(text, twice);
  encoder.encode(text, twice);  // now out of what it remembers
  ids.insert(ids.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(ids.size()));
  EXPECT_EQ(twice, ids);
}

TEST(Tokenizer, RoundTripOfHostileText) {
  for (const std::string& text : hostile_texts()) expect_round_trip(text);
}

TEST(Tokenizer, RoundTripOfRandomUnicode) {
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) expect_round_trip(random_unicode(random));
}

TEST(Tokenizer, RoundTripOfOneLongWord) {
  expect_round_trip(std::string(300'000, 'a') + "\u20AC" + std::string(300'001, 'b'));
}

// Encoding segment by segment is only a faster way to what SentencePiece does with the whole text.
TEST(Tokenizer, AgreesWithSentencePieceOnWholeTexts) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(tokenizer().bytes()).ok());
  std::vector<std::string> texts = hostile_texts();
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) texts.push_back(random_unicode(random));
  texts.push_back(joined(made_up_documents(200, 3)));
  for (const std::string& text : texts) {
    if (contains(text, "\u2581")) continue;  // SentencePiece loses it
    std::vector<int> expected;
    ASSERT_TRUE(processor.Encode(text, &expected).ok());
    EXPECT_EQ(tokenizer().encode(text), expected) << text;
  }
}

TEST(Tokenizer, HasTheIdsThatLlamaTokenizerExpects) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(tokenizer().bytes()).ok());
  EXPECT_EQ(tokenizer().size(), 600);
  EXPECT_EQ(processor.PieceToId("<unk>"), 0);
  EXPECT_EQ(processor.PieceToId("<s>"), 1);
  EXPECT_EQ(processor.PieceToId("</s>"), 2);
  EXPECT_EQ(tokenizer().separator(), 2);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(processor.PieceToId(format_text("<0x{:02X}>", byte)), 3 + byte);
  EXPECT_EQ(tokenizer().hash(), checksum(tokenizer().bytes()));
}

TEST(Tokenizer, LineEndsJoinWithWhatComesBefore) {
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(tokenizer().bytes()).ok());
  EXPECT_NE(processor.PieceToId(".\n"), 0) << "a frequent sentence end is one piece";
}

TEST(Tokenizer, DecodesPartsAndRefusesWrongIds) {
  const std::vector<int32_t> euro = tokenizer().encode("\u20AC");
  ASSERT_EQ(euro.size(), 3u);
  EXPECT_EQ(tokenizer().decode(std::span(euro).first(2)), "\xE2\x82");
  EXPECT_EQ(tokenizer().decode(std::vector<int32_t>{1, 2}), "");
  for (int32_t bad : {-1, 600, 1 << 30}) EXPECT_THROW(tokenizer().decode(std::vector<int32_t>{bad}), InputError);
}

std::string plain_model(std::unordered_map<std::string, std::string> options) {
  TestFolder folder;
  std::string text;
  for (const std::string& document : made_up_documents(300)) text += document + "\n";
  options.insert({{"input", folder.file("in.txt", text).string()},
                  {"model_prefix", (folder / "m").string()},
                  {"minloglevel", "4"},
                  {"vocab_size", "340"}});
  auto status = sentencepiece::SentencePieceTrainer::Train(options);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return read_file(folder / "m.model");
}

TEST(Tokenizer, RefusesModelsThatAreNotLossless) {
  const std::unordered_map<std::string, std::string> lossless = {{"byte_fallback", "true"},
                                                                 {"normalization_rule_name", "identity"},
                                                                 {"remove_extra_whitespaces", "false"},
                                                                 {"add_dummy_prefix", "false"}};
  EXPECT_NO_THROW(Tokenizer::from_bytes(plain_model(lossless), "m"));  // a unigram model serves as well
  struct Case {
    std::string option, value, says;
  };
  for (const Case& wrong :
       {Case{"byte_fallback", "false", "no byte fallback"},
        Case{"normalization_rule_name", "nmt_nfkc", "changes the text"},
        Case{"remove_extra_whitespaces", "true", "changes the text"},
        Case{"add_dummy_prefix", "true", "changes the text"}, Case{"eos_id", "-1", "no </s>"}}) {
    auto options = lossless;
    options[wrong.option] = wrong.value;
    std::string error = input_error([&] { Tokenizer::from_bytes(plain_model(options), "m"); });
    EXPECT_TRUE(contains(error, wrong.says)) << error;
  }
}

TEST(Tokenizer, AUserModelWithPiecesAcrossWordsStillRoundTrips) {
  Tokenizer crossing = Tokenizer::from_bytes(plain_model({{"model_type", "bpe"},
                                                          {"byte_fallback", "true"},
                                                          {"normalization_rule_name", "identity"},
                                                          {"remove_extra_whitespaces", "false"},
                                                          {"add_dummy_prefix", "false"},
                                                          {"split_by_whitespace", "false"}}),
                                             "m");
  sentencepiece::SentencePieceProcessor processor;
  ASSERT_TRUE(processor.LoadFromSerializedProto(crossing.bytes()).ok());
  for (const std::string& text : made_up_documents(50, 9)) {
    std::vector<int> expected;
    ASSERT_TRUE(processor.Encode(text, &expected).ok());
    EXPECT_EQ(crossing.encode(text), expected);
    EXPECT_EQ(crossing.decode(expected), text);
  }
}

TEST(Tokenizer, RefusesWhatIsNoModel) {
  TestFolder folder;
  EXPECT_THROW(Tokenizer::load(folder / "missing.model"), InputError);
  const std::string model = tokenizer().bytes();
  for (const std::string& bytes :
       {""s, "hello"s, std::string(1000, '\0'), std::string(1000, '\xFF'), model.substr(0, 777)}) {
    auto path = folder.file("bad.model", bytes);
    EXPECT_TRUE(contains(input_error([&] { Tokenizer::load(path); }), path.string()));
  }
}

TEST(TrainTokenizer, SameDocumentsInAnyOrderGiveTheSameBytes) {
  std::vector<std::string> documents = made_up_documents(2000);
  const std::string once = train_tokenizer(documents, 500);
  EXPECT_EQ(train_tokenizer(documents, 500), once);
  std::reverse(documents.begin(), documents.end());
  EXPECT_EQ(train_tokenizer(documents, 500), once);
}

TEST(TrainTokenizer, SaysWhichVocabularyFits) {
  const std::vector<std::string> documents = made_up_documents(30);
  std::string error = input_error([&] { train_tokenizer(documents, 30000); });
  size_t at = error.find("--vocabulary-size ");
  ASSERT_NE(at, std::string::npos) << error;
  int64_t advised = std::stoll(error.substr(at + 18));
  EXPECT_EQ(Tokenizer::from_bytes(train_tokenizer(documents, advised), "m").size(), advised);
  EXPECT_THROW(train_tokenizer(documents, advised + 1), InputError);

  error = input_error([&] { train_tokenizer(documents, 262); });
  EXPECT_TRUE(contains(error, "too small for this text")) << error;
  for (int64_t bad : {-1, 0, 259, 65537, 1 << 30}) {
    EXPECT_TRUE(contains(input_error([&] { train_tokenizer(documents, bad); }), "between 260 and 65536")) << bad;
  }
}

TEST(TrainTokenizer, LearnsFromTextWithReservedCharactersAndLongWords) {
  std::vector<std::string> documents;
  for (const std::string& text : made_up_documents(500))
    documents.push_back("\t" + text + "\t\u2581\u2585" + "\0"s + text);
  documents.push_back(std::string(200'000, 'q'));
  Tokenizer learned = Tokenizer::from_bytes(train_tokenizer(documents, 500), "m");
  EXPECT_EQ(learned.decode(learned.encode(documents[0])), documents[0]);
  EXPECT_LT(learned.encode(documents[0]).size(), documents[0].size() / 2);  // not bytes alone
}

// Text with few or no spaces (Chinese) must not lose them.
TEST(TrainTokenizer, SpacesSurviveWhereTheTrainingTextHasNone) {
  std::string text;
  std::mt19937 random(8);
  for (int i = 0; i < 20'000; ++i) text += static_cast<char>('a' + random() % 20);
  for (const std::string& sample : {text, text + " " + text}) {
    Tokenizer learned = Tokenizer::from_bytes(train_tokenizer({sample}, 300), "m");
    EXPECT_EQ(learned.decode(learned.encode("  two words \u2581 ")), "  two words \u2581 ");
  }
}

TEST(TrainTokenizer, NothingToLearnIsAnInputError) {
  EXPECT_THROW(train_tokenizer({}, 300), InputError);
  EXPECT_THROW(train_tokenizer({"\t\t\t", ""}, 300), InputError);
}

TEST(DocumentSampler, IsTheSmallestKeysInAnyOrder) {
  std::vector<std::string> documents = made_up_documents(300);
  documents.push_back(documents[5]);
  SplitRule rule;
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const std::string& text : documents) sorted.emplace_back(rule.key(text), text);
  std::sort(sorted.begin(), sorted.end());
  std::string all;
  for (const auto& entry : sorted) all += entry.second;
  for (size_t limit : {size_t{0}, size_t{1}, size_t{1000}, size_t{10'000}, all.size(), all.size() + 5}) {
    for (bool reverse : {false, true}) {
      DocumentSampler sampler(limit);
      std::vector<std::string> order = documents;
      if (reverse) std::reverse(order.begin(), order.end());
      for (const std::string& text : order) sampler.add(rule.key(text), text);
      std::string sample;
      for (const std::string& text : sampler.take()) sample += text;
      EXPECT_EQ(sample, all.substr(0, limit));
    }
  }
}

}  // namespace
}  // namespace depthroute
