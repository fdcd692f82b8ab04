#include "data/parquet_reader.h"

#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_dict.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/io/memory.h>
#include <arrow/table.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "data/test_support.h"

namespace depthroute {
namespace {

using Texts = std::vector<std::optional<std::string>>;

template <typename Builder>
std::shared_ptr<arrow::Array> texts_by(Builder builder, const Texts& texts) {
  for (const auto& text : texts) {
    EXPECT_TRUE((text ? builder.Append(*text) : builder.AppendNull()).ok());
  }
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> texts_of(const std::string& type, const Texts& texts) {
  if (type == "large_string") return texts_by(arrow::LargeStringBuilder(), texts);
  if (type == "dictionary") return texts_by(arrow::StringDictionaryBuilder(), texts);
  if (type == "binary") return texts_by(arrow::BinaryBuilder(), texts);
  return texts_by(arrow::StringBuilder(), texts);
}

// A file like FineWeb-Edu's: other columns on both sides of the text.
std::string parquet_bytes(const Texts& texts, const std::string& type = "string",
                          arrow::Compression::type codec = arrow::Compression::SNAPPY, int64_t row_group = 3) {
  arrow::Int64Builder ids;
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_TRUE(ids.Append(static_cast<int64_t>(i)).ok());
  std::shared_ptr<arrow::Array> id = ids.Finish().ValueOrDie(), text = texts_of(type, texts);
  auto schema = arrow::schema({arrow::field("token_count", id->type()), arrow::field("text", text->type()),
                               arrow::field("score", id->type())});
  auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  auto properties = parquet::WriterProperties::Builder().compression(codec)->enable_page_checksum()->build();
  auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  EXPECT_TRUE(parquet::arrow::WriteTable(*arrow::Table::Make(schema, {id, text, id}), arrow::default_memory_pool(),
                                         sink, row_group, properties, arrow_properties)
                  .ok());
  return sink->Finish().ValueOrDie()->ToString();
}

std::vector<std::string> read(const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (const Document& document : read_all(path)) texts.push_back(document.text);
  return texts;
}

const Texts kTexts = {"one",        std::nullopt, "",    "two\nlines", "\xE4\xB8\xAD\xF0\x9F\x98\x80",
                      std::nullopt, "one",        "last"};
const std::vector<std::string> kExpected = {"one", "two\nlines", "\xE4\xB8\xAD\xF0\x9F\x98\x80", "one", "last"};

TEST(Parquet, ReadsEveryTypeOfStringsAndEveryCodec) {
  TestFolder folder;
  for (const char* type : {"string", "large_string", "dictionary"}) {
    for (auto codec : {arrow::Compression::UNCOMPRESSED, arrow::Compression::SNAPPY, arrow::Compression::GZIP,
                       arrow::Compression::ZSTD, arrow::Compression::BROTLI, arrow::Compression::LZ4}) {
      for (int64_t row_group : {1, 3, 100})
        EXPECT_EQ(read(folder.file("a", parquet_bytes(kTexts, type, codec, row_group))), kExpected)
            << type << " " << codec;
    }
  }
  EXPECT_TRUE(read(folder.file("none", parquet_bytes({}))).empty());
  const auto documents = read_all(folder.file("a.parquet", parquet_bytes(kTexts)));
  EXPECT_TRUE(documents[1].where.ends_with("a.parquet: row 4")) << documents[1].where;
}

TEST(Parquet, AFolderMixesFormats) {
  TestFolder folder;
  std::filesystem::create_directory(folder.path() / "in");
  folder.file("in/1.parquet", parquet_bytes({"from parquet"}));
  folder.file("in/2.jsonl", "{\"text\": \"from jsonl\"}\n");
  EXPECT_EQ(read(folder.path() / "in"), (std::vector<std::string>{"from parquet", "from jsonl"}));
}

TEST(Parquet, IdentifiersAreStringsOrNumbers) {
  TestFolder folder;
  const auto path = folder.file("a.parquet", parquet_bytes(kTexts));
  DocumentOptions options;
  options.id_column = "token_count";
  const auto documents = read_all(path, options);
  ASSERT_EQ(documents.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(documents[i].text, kExpected[i]);
    EXPECT_EQ(documents[i].id, (std::vector<std::string>{"0", "3", "4", "6", "7"})[i]);
  }
  options = {DocumentFormat::kAuto, DocumentUnit::kParagraph, "text", "none"};
  EXPECT_TRUE(contains(input_error([&] { read_all(path, options); }), "name the id's with --id-column"));
}

TEST(Parquet, TheSameDocumentsInOtherFilesAndAnotherOrderAreTheSameSplits) {
  TestFolder folder;
  const std::vector<std::string> documents = made_up_documents(3000);
  Texts texts(documents.begin(), documents.end());
  PrepareOptions options;
  options.vocabulary_size = 500;
  options.sample_bytes = 20'000;
  options.split = {3, {0.8, 0.1, 0.1}};
  const auto prepared = [&](const char* name, std::vector<std::filesystem::path> inputs) {
    options.inputs = std::move(inputs);
    options.output = folder.path() / name;
    return prepare(options).manifest;
  };
  const Manifest one =
      prepared("one", {folder.file("all.parquet", parquet_bytes(texts, "string", arrow::Compression::ZSTD, 100))});
  std::reverse(texts.begin(), texts.end());
  std::vector<std::filesystem::path> files;
  for (size_t begin = 0; begin < texts.size(); begin += 700) {
    const Texts part(texts.begin() + static_cast<std::ptrdiff_t>(begin),
                     texts.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 700, texts.size())));
    files.push_back(folder.file("part-" + std::to_string(begin), parquet_bytes(part, "large_string")));
  }
  std::swap(files[1], files[3]);
  const Manifest other = prepared("other", files);
  EXPECT_EQ(one.tokenizer_hash, other.tokenizer_hash);
  for (Split split : kSplits) {
    EXPECT_EQ(one[split].document_hash, other[split].document_hash);
    EXPECT_EQ(one[split].tokens, other[split].tokens);
    EXPECT_EQ(one[split].token_lengths, other[split].token_lengths);
  }
}

TEST(Parquet, ErrorsNameTheFileAndWhatIsWrong) {
  TestFolder folder;
  const auto error = [&](const std::string& bytes, const std::string& column = "text") {
    DocumentOptions options;
    options.text_column = column;
    const auto path = folder.file("x.parquet", bytes);
    return input_error([&] { read_all(path, options); });
  };
  const std::string bytes = parquet_bytes(kTexts);
  for (const auto& [message, part] : std::vector<std::pair<std::string, std::string>>{
           {error(bytes, "content"), "no column 'content' (the columns are token_count, text, score)"},
           {error(bytes, "score"), "column 'score' holds int64"},
           {error(parquet_bytes(kTexts, "binary")), "column 'text' holds binary"},
           {error(parquet_bytes({"fine", "bad \xff"})), "row 2: byte 5 (0xFF)"},
           {error("PAR1...."), "x.parquet"},
           {error(bytes.substr(0, bytes.size() - 1)), "x.parquet"}}) {
    EXPECT_TRUE(contains(message, "x.parquet") && contains(message, part)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  for (size_t size = 4; size < bytes.size(); size += 41) EXPECT_NE(error(bytes.substr(0, size)), "") << size;
}

// The pages of the file have checksums, their headers do not: damage there may go unseen, and may cost a text. But nothing
// crashes, and no text is read that is not in the file.
TEST(Parquet, NoDamageChangesAText) {
  TestFolder folder;
  const std::string bytes = parquet_bytes(kTexts, "string", arrow::Compression::UNCOMPRESSED);
  size_t found = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    const auto path = folder.file("x.parquet", damaged);
    std::vector<std::string> texts;
    DocumentOptions options;
    options.format = DocumentFormat::kParquet;
    try {
      for (const Document& document : read_all(path, options)) texts.push_back(document.text);
      for (const std::string& text : texts)
        EXPECT_NE(std::ranges::find(kExpected, text), kExpected.end()) << "bit of byte " << i << ": " << text;
    } catch (const InputError&) {
      ++found;
    }
  }
  EXPECT_GT(found, bytes.size() / 3);
}

}  // namespace
}  // namespace depthroute
