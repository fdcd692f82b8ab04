#include "data/parquet_reader.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <utility>

#include "data/line_reader.h"
#include "data/utf8.h"
#include "io/error.h"
#include "io/format.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

// Arrow's messages may have several lines.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The i-th text of a chunk of strings; empty for a null.
std::string_view text_at(const arrow::Array& chunk, int64_t i) {
  if (chunk.IsNull(i)) return {};
  switch (chunk.type_id()) {
    case arrow::Type::STRING:
      return static_cast<const arrow::StringArray&>(chunk).GetView(i);
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeStringArray&>(chunk).GetView(i);
    default: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(chunk);
      return text_at(*dictionary.dictionary(), dictionary.GetValueIndex(i));
    }
  }
}

bool holds_strings(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY)
    return holds_strings(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
}

class ParquetReader : public DocumentReader {
 public:
  ParquetReader(const fs::path& path, const std::string& text_column) : path_(path) {
    guarded("", [&] {
      parquet::ReaderProperties properties;
      properties.set_page_checksum_verification(true);
      parquet::arrow::FileReaderBuilder builder;
      check(builder.Open(value(arrow::io::ReadableFile::Open(path.string()), ""), properties), "");
      check(builder.Build(&reader_), "");
      find_column(text_column);
    });
  }

  bool next(Document& document) override {
    while (true) {
      while (chunk_ < chunk_count() && row_ == table_->column(0)->chunk(chunk_)->length()) ++chunk_, row_ = 0;
      if (chunk_ == chunk_count()) {
        if (!read_row_group()) return false;
        continue;
      }
      std::string_view text = text_at(*table_->column(0)->chunk(chunk_), row_++);
      ++row_number_;
      if (text.empty()) continue;
      document.where = format_text("{}: row {}", path_.string(), row_number_);
      check_text(text, document.where);
      document.text = text;
      return true;
    }
  }

 private:
  void check(const arrow::Status& status, const std::string& where) const {
    if (!status.ok()) fail_input("{}: {}{}", path_.string(), where, first_line(status.message()));
  }

  template <typename T>
  T value(arrow::Result<T> result, const std::string& where) const {
    check(result.status(), where);
    return std::move(result).ValueUnsafe();
  }

  // Arrow throws for some damages and returns a status for others.
  template <typename Function>
  void guarded(const std::string& where, Function function) const {
    try {
      function();
    } catch (const InputError&) {
      throw;
    } catch (const std::exception& error) {  // ParquetException, and what a damaged footer leads the library to
      fail_input("{}: {}{}", path_.string(), where, first_line(error.what()));
    }
  }

  void find_column(const std::string& name) {
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema), "");
    const std::shared_ptr<arrow::Field> field = schema->GetFieldByName(name);
    if (!field) {
      fail_input("{}: no column '{}' (the columns are {}): name the text's with --text-column", path_.string(),
                 name, join_text(schema->field_names(), ", "));
    }
    if (!holds_strings(*field->type())) {
      fail_input("{}: column '{}' holds {}, not strings", path_.string(), name, field->type()->ToString());
    }
    // A column of strings is one leaf, and has its name for a path.
    column_ = reader_->parquet_reader()->metadata()->schema()->ColumnIndex(name);
  }

  bool read_row_group() {
    if (row_group_ == reader_->num_row_groups()) return false;
    const std::string where = format_text("row group {}: ", row_group_);
    guarded(where, [&] { table_ = value(reader_->ReadRowGroup(row_group_, {column_}), where); });
    const int64_t rows = reader_->parquet_reader()->metadata()->RowGroup(row_group_)->num_rows();
    if (table_->num_rows() != rows)
      fail_input("{}: {}{} rows, expected {}", path_.string(), where, table_->num_rows(), rows);
    ++row_group_;
    chunk_ = 0, row_ = 0;
    return true;
  }

  static void check_text(std::string_view text, const std::string& where) {
    if (text.size() > LineReader::kMaximumLineBytes)
      fail_input("{}: the document is longer than {} bytes: divide it", where, LineReader::kMaximumLineBytes);
    size_t bad = find_invalid_utf8(text);
    if (bad == std::string_view::npos) return;
    fail_input("{}: byte {} (0x{:02X}) is not valid UTF-8", where, bad + 1, static_cast<unsigned char>(text[bad]));
  }

  int chunk_count() const { return table_ ? table_->column(0)->num_chunks() : 0; }

  fs::path path_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  int column_ = 0, row_group_ = 0, chunk_ = 0;
  int64_t row_ = 0, row_number_ = 0;
  std::shared_ptr<arrow::Table> table_;
};

}  // namespace

std::unique_ptr<DocumentReader> open_parquet(const fs::path& path, const std::string& text_column) {
  return std::make_unique<ParquetReader>(path, text_column);
}

}  // namespace depthroute
