#include "data/document_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "data/line_reader.h"
#include "data/test_support.h"
#include "data/utf8.h"

namespace depthroute {
namespace {

using std::string_literals::operator""s;

std::vector<std::string> texts(const std::vector<Document>& documents) {
  std::vector<std::string> result;
  for (const Document& document : documents) result.push_back(document.text);
  return result;
}

DocumentOptions of(DocumentFormat format) {
  DocumentOptions options;
  options.format = format;
  return options;
}

using Texts = std::vector<std::string>;

TEST(TextReader, ParagraphsLieBetweenBlankLines) {
  TestFolder folder;
  auto path = folder.file("a.txt", "\n\nFirst line\n  second line\n \t\n\nNext\n\n\nlast");
  auto documents = read_all(path);
  EXPECT_EQ(texts(documents), (Texts{"First line\n  second line", "Next", "last"}));
  EXPECT_EQ(documents[0].where, path.string() + ":3");
  EXPECT_EQ(documents[2].where, path.string() + ":10");
}

TEST(TextReader, KeepsWhatIsInsideAParagraph) {
  TestFolder folder;
  EXPECT_EQ(texts(read_all(folder.file("crlf.txt", "one\r\ntwo\r\n\r\nthree\r\n"))),
            (Texts{"one\r\ntwo", "three"}));
  EXPECT_EQ(texts(read_all(folder.file("nul.txt", "a\0b\tc\n\nd\n"s))), (Texts{"a\0b\tc"s, "d"}));
  EXPECT_EQ(texts(read_all(folder.file("bom.txt",
                                       "\xEF\xBB\xBF"
                                       "first\n"))),
            (Texts{"first"}));
  EXPECT_TRUE(read_all(folder.file("empty.txt", "")).empty());
  EXPECT_TRUE(read_all(folder.file("blank.txt", "\n \n\t\n")).empty());
}

TEST(TextReader, WholeFileIsItsBytes) {
  TestFolder folder;
  DocumentOptions options;
  options.unit = DocumentUnit::kFile;
  const std::string text = "\n\n  one\r\n\n\ntwo\0\n\n"s;
  EXPECT_EQ(texts(read_all(folder.file("a.txt", text), options)), (Texts{text}));
  EXPECT_TRUE(read_all(folder.file("empty.txt", ""), options).empty());
}

TEST(TextReader, ALineOfTenMegabytesIsOneDocument) {
  TestFolder folder;
  std::string line(10'000'000, 'x');
  line[5'000'000] = '\0';
  EXPECT_EQ(texts(read_all(folder.file("long.txt", line + "\n\nend"))), (Texts{line, "end"}));
}

TEST(TextReader, InvalidUtf8NamesFileAndLine) {
  TestFolder folder;
  auto path = folder.file("latin.txt",
                          "good\nalso good\n\nfa\xE7"
                          "ade\n");
  for (auto unit : {DocumentUnit::kParagraph, DocumentUnit::kFile}) {
    DocumentOptions options;
    options.unit = unit;
    std::string error = input_error([&] { read_all(path, options); });
    EXPECT_TRUE(contains(error, path.string() + ":4: byte 3 (0xE7)")) << error;
  }
}

TEST(Gzip, ReadsTheSameAsPlain) {
  TestFolder folder;
  const std::string text = joined(made_up_documents(2000)), more = "\n\nmore";
  auto plain = folder.file("a.txt", text + more);
  // Two members one after another are one file, as dictzip and parallel compressors write it.
  auto packed = folder.file("a.txt.gz", gzip(folder, text) + gzip(folder, more));
  EXPECT_EQ(texts(read_all(packed)), texts(read_all(plain)));
}

TEST(Gzip, TruncatedOrDamagedNamesFile) {
  TestFolder folder;
  const std::string whole = gzip(folder, joined(made_up_documents(5000)));
  for (size_t keep : {whole.size() - 1, whole.size() - 9, whole.size() / 2, size_t{30}, size_t{12}}) {
    auto path = folder.file("cut.gz", whole.substr(0, keep));
    EXPECT_TRUE(contains(input_error([&] { read_all(path, of(DocumentFormat::kText)); }),
                         path.string() + ": the gzip file ends"))
        << keep;
  }
  std::string flipped = whole;
  flipped[flipped.size() - 6] ^= 1;  // of the CRC
  auto path = folder.file("flipped.gz", flipped);
  EXPECT_TRUE(contains(input_error([&] { read_all(path); }), path.string() + ": the gzip file is damaged"));
}

std::string zstd_bytes(const std::string& text) {
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3));
  return bytes;
}

TEST(Zstd, ReadsTheSameAsPlain) {
  TestFolder folder;
  // Much longer than a block when decompressed, much shorter before; and two frames one after another.
  std::string text;
  for (int i = 0; i < 60000; ++i) text += "{\"text\": \"the same words in line " + std::to_string(i % 7) + "\"}\n";
  const auto plain = texts(read_all(folder.file("a.jsonl", text + text)));
  EXPECT_EQ(plain.size(), 120000u);
  EXPECT_EQ(texts(read_all(folder.file("a.jsonl.zst", zstd_bytes(text + text)))), plain);
  EXPECT_EQ(texts(read_all(folder.file("two_frames", zstd_bytes(text) + zstd_bytes(text)))), plain);
  EXPECT_TRUE(read_all(folder.file("empty.zst", zstd_bytes(""))).empty());
}

TEST(Zstd, TruncatedOrDamagedNamesFile) {
  TestFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * 7919 % 3001) + "\n\n";
  const std::string bytes = zstd_bytes(text);
  for (size_t size = 4; size < bytes.size(); size += bytes.size() / 40 + 1) {
    const std::string message = input_error([&] { read_all(folder.file("cut.zst", bytes.substr(0, size))); });
    EXPECT_TRUE(contains(message, "cut.zst") && contains(message, "truncated")) << size << ": " << message;
  }
  std::string damaged = bytes;
  damaged[6] ^= 0x7f;
  EXPECT_TRUE(contains(input_error([&] { read_all(folder.file("bad.zst", damaged)); }), "bad.zst"));
  EXPECT_TRUE(contains(input_error([&] { read_all(folder.file("x.zst", "\x28\xB5\x2F\xFD....")); }), "zstd"));
}

TEST(JsonlReader, ReadsTheTextOfEachLine) {
  TestFolder folder;
  auto path = folder.file("a.jsonl",
                          "{\"id\": 1, \"text\": \"one\\ntwo \\u00e9 \\ud83d\\ude00 \\u0000.\"}\n\n"
                          "{\"text\": \"\"}\r\n{\"text\": \"last\"}");
  auto documents = read_all(path);
  EXPECT_EQ(texts(documents), (Texts{"one\ntwo \u00E9 \U0001F600 \0."s, "last"}));
  EXPECT_EQ(documents[1].where, path.string() + ":4");
  DocumentOptions options;
  options.text_column = "body";
  EXPECT_EQ(texts(read_all(folder.file("b.jsonl", "{\"body\": \"x\", \"text\": 3}\n"), options)), (Texts{"x"}));
}

TEST(JsonlReader, ErrorsNameFileAndLine) {
  TestFolder folder;
  struct Case {
    std::string line, says;
  };
  for (const Case& wrong :
       {Case{"{\"text\": \"a", "bad JSON"}, Case{"{\"text\": \"\\ud800\"}", "bad JSON"},
        Case{"{\"text\": 1e99999}", "bad JSON"}, Case{"not json", "bad JSON"},
        Case{"{\"text\": \"a\"} x", "bad JSON"}, Case{"[1, 2]", "object is expected, not array"},
        Case{"{\"body\": \"a\", \"id\": 2}", "no key 'text' (the keys are 'body', 'id')"},
        Case{"{}", "no key 'text' (the keys are none)"}, Case{"{\"text\": 7}", "'text' holds number, not a string"},
        Case{"{\"text\": null}", "'text' holds null, not a string"},
        Case{"{\"text\": \"fa\xE7"
             "ade\"}",
             "not valid UTF-8"}}) {
    auto path = folder.file("bad.jsonl", "{\"text\": \"good\"}\n" + wrong.line + "\n");
    std::string error = input_error([&] { read_all(path); });
    EXPECT_TRUE(contains(error, path.string() + ":2: ") && contains(error, wrong.says)) << error;
  }
}

TEST(JsonlReader, DeepNestingIsNoTrouble) {
  TestFolder folder;
  std::string deep = "{\"text\": \"x\", \"more\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}\n";
  EXPECT_EQ(texts(read_all(folder.file("deep.jsonl", deep))), (Texts{"x"}));
}

// Text of the tests' own in the layout of the dictionary.
constexpr std::string_view kDictionary =
    "\n\n00-database-url\n   ftp://example.org\n\n00-database-info\n   Converted on:\n         some day\n\n"
    "Free to copy.\n\n========\n\n   Last edit.\n\n      A motto.   --Anon.\n"
    "Ab \\Ab\\ n.\n   1. The first.\n\n   Note: still the first.\n\n\n[A source]\n\n   2. More of it.\n\n"
    "Ba \\Ba\\, a.\n   Market\x92s word.\n      [A source]\n\nCe \\Ce\\\n   Third.\n";

TEST(GcideReader, ADocumentIsAnEntry) {
  TestFolder folder;
  auto path = folder.file("small.dict.dz", gzip(folder, kDictionary));
  auto documents = read_all(path);  // the format told by its content
  EXPECT_EQ(
      texts(documents),
      (Texts{"Ab \\Ab\\ n.\n   1. The first.\n\n   Note: still the first.\n\n\n[A source]\n\n   2. More of it.",
             "Ba \\Ba\\, a.\n   Market\uFFFDs word.\n      [A source]", "Ce \\Ce\\\n   Third."}));
  EXPECT_EQ(documents[0].where, path.string() + ":17");
}

// The package's index lists where each headword's entry begins: base-64 numbers into the uncompressed text.
std::set<std::string> indexed_first_lines(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::set<std::string> lines;
  std::ifstream index("/usr/share/dictd/gcide.index");
  for (std::string line; std::getline(index, line);) {
    size_t begin = line.find('\t') + 1, offset = 0;
    for (size_t i = begin; line[i] != '\t'; ++i) offset = offset * 64 + digits.find(line[i]);
    lines.insert(replace_invalid_utf8(text.substr(offset, text.find('\n', offset) - offset)));
  }
  return lines;
}

TEST(GcideReader, TheRealDictionaryAgreesWithItsIndex) {
  const std::filesystem::path path = "/usr/share/dictd/gcide.dict.dz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the package dict-gcide is not installed";
  std::string text;
  LineReader lines(path);
  for (std::string line; lines.next(line);) text += line;
  const std::set<std::string> indexed = indexed_first_lines(text);
  size_t documents = 0, unknown = 0;
  for (const std::string& entry : texts(read_all(path))) {
    ++documents;
    unknown += indexed.contains(entry.substr(0, entry.find('\n'))) ? 0 : 1;
  }
  EXPECT_NEAR(static_cast<double>(documents), 126'230, 20);
  EXPECT_LE(unknown, 5u);
}

TEST(InputFiles, AFolderIsItsFilesSortedWithoutHiddenOnes) {
  TestFolder folder;
  for (const char* name : {"in/b.txt", "in/a/z.txt", "in/a.txt", "in/.hidden", "in/.git/x.txt"})
    folder.file(name, "x");
  auto single = folder.file("single.txt", "x");
  std::vector<std::string> names;
  for (const InputFile& file : list_input_files({single, folder / "in"})) names.push_back(file.name);
  EXPECT_EQ(names, (Texts{"single.txt", "a.txt", "a/z.txt", "b.txt"}));
}

TEST(InputFiles, APatternIsItsFilesSorted) {
  TestFolder folder;
  for (const char* name : {"b.txt", "a.txt", "c.md"}) folder.file(name, std::string(name) + "\n");
  std::vector<std::string> names;
  for (const InputFile& file : list_input_files({folder.path() / "*.txt"})) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.txt", "b.txt"}));
  // A file may have such a name, and then it is that file.
  folder.file("[x]*.txt", "x\n");
  EXPECT_EQ(list_input_files({folder.path() / "[x]*.txt"}).size(), 1u);
  EXPECT_TRUE(contains(input_error([&] { list_input_files({folder.path() / "*.csv"}); }), "*.csv"));
}

TEST(InputFiles, ErrorsNameTheInput) {
  TestFolder folder;
  std::filesystem::create_directory(folder / "empty");
  EXPECT_TRUE(contains(input_error([&] { list_input_files({folder / "none"}); }), "none'"));
  EXPECT_TRUE(contains(input_error([&] { list_input_files({folder / "empty"}); }), "empty' holds no files"));
  EXPECT_TRUE(contains(input_error([&] { list_input_files({"/dev/null"}); }), "'/dev/null'"));
  EXPECT_TRUE(contains(input_error([&] { read_all(folder.file("x.parquet", "PAR1....")); }), "parquet"));
  EXPECT_TRUE(contains(input_error([&] { document_format("csv"); }), "auto, text, jsonl, parquet, gcide"));
  EXPECT_TRUE(contains(input_error([&] { document_unit("line"); }), "paragraph, file"));
}

}  // namespace
}  // namespace depthroute
