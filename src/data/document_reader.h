// Documents out of files: each format is one reader behind one interface, and a corpus is its files read one after
// another.
//
//   text    plain UTF-8 text; a document is a paragraph (lines between blank lines) or a whole file
//   jsonl   one JSON object a line, the text under one of its keys
//   parquet the text in one of its columns, of strings (large, dictionary-encoded, with nulls), any codec; a document is a row
//   gcide   the dictionary of Debian's dict-gcide (dictzip); a document is an entry
//
// Any of them but parquet may be compressed with gzip or zstd. A document is at most LineReader::kMaximumLineBytes long; NUL is a
// character like any other; lines of any length up to that work. Documents without text are left out. Reading holds
// one document in memory, of parquet one column of a row group.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace depthroute {

struct Document {
  std::string where;  // "file:line" of its first line (parquet: "file: row N"), for messages
  std::string text;   // valid UTF-8, never empty
  std::string id;     // where DocumentOptions::id_column is given
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // False at the end. InputError naming file and line where the input is not what it should be.
  virtual bool next(Document& document) = 0;
};

enum class DocumentFormat { kAuto, kText, kJsonl, kParquet, kGcide };
enum class DocumentUnit { kParagraph, kFile };

// "auto", "text", "jsonl", "parquet", "gcide"; "paragraph", "file". InputError for another name.
DocumentFormat document_format(std::string_view name);
DocumentUnit document_unit(std::string_view name);
std::string_view name_of(DocumentFormat format);
std::string_view name_of(DocumentUnit unit);

struct DocumentOptions {
  DocumentFormat format = DocumentFormat::kAuto;  // kAuto: told by the first bytes of each file
  DocumentUnit unit = DocumentUnit::kParagraph;   // of plain text
  std::string text_column = "text";               // the key of a jsonl line, the column of a parquet file
  std::string id_column;  // likewise, of an identifier: a string, a whole number or null; empty: none is read
};

struct InputFile {
  std::filesystem::path path;
  std::string name;  // as the manifest records it: the file's name, or its path within the folder that was given
};

// The files of the inputs, in the order given; a folder stands for its files at any depth, sorted by path (byte
// order), without hidden ones, and a pattern (*, ?, [..]) for the files it matches, sorted. InputError where an input is missing, not a regular file, or a folder without files.
std::vector<InputFile> list_input_files(const std::vector<std::filesystem::path>& inputs);

// The documents of all files in their order.
std::unique_ptr<DocumentReader> open_documents(std::vector<InputFile> files, DocumentOptions options);

}  // namespace depthroute
