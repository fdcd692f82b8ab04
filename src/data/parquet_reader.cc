#include "data/parquet_reader.h"

#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/type_traits.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <utility>
#include <vector>

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

// The i-th value of a chunk; empty for a null. `number` holds the digits of one that is no string.
std::string_view text_at(const arrow::Array& chunk, int64_t i, std::string& number) {
  if (chunk.IsNull(i)) return {};
  switch (chunk.type_id()) {
    case arrow::Type::STRING:
      return static_cast<const arrow::StringArray&>(chunk).GetView(i);
    case arrow::Type::LARGE_STRING:
      return static_cast<const arrow::LargeStringArray&>(chunk).GetView(i);
    case arrow::Type::DICTIONARY: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(chunk);
      return text_at(*dictionary.dictionary(), dictionary.GetValueIndex(i), number);
    }
    default:
      return number = chunk.GetScalar(i).ValueOrDie()->ToString();
  }
}

bool holds_strings(const arrow::DataType& type) {
  if (type.id() == arrow::Type::DICTIONARY)
    return holds_strings(*static_cast<const arrow::DictionaryType&>(type).value_type());
  return type.id() == arrow::Type::STRING || type.id() == arrow::Type::LARGE_STRING;
}

// Reads a column of a row group value by value.
class ColumnCursor {
 public:
  ColumnCursor() = default;
  explicit ColumnCursor(std::shared_ptr<arrow::ChunkedArray> values) : values_(std::move(values)) {}

  // False at the end.
  bool next(std::string_view& text) {
    while (values_ && chunk_ < values_->num_chunks() && row_ == values_->chunk(chunk_)->length())
      ++chunk_, row_ = 0;
    if (!values_ || chunk_ == values_->num_chunks()) return false;
    text = text_at(*values_->chunk(chunk_), row_++, number_);
    return true;
  }

 private:
  std::shared_ptr<arrow::ChunkedArray> values_;
  int chunk_ = 0;
  int64_t row_ = 0;
  std::string number_;
};

class ParquetReader : public DocumentReader {
 public:
  ParquetReader(const fs::path& path, const std::string& text_column, const std::string& id_column)
      : path_(path), text_column_(text_column), id_column_(id_column) {
    guarded("", [&] {
      parquet::ReaderProperties properties;
      properties.set_page_checksum_verification(true);
      parquet::arrow::FileReaderBuilder builder;
      check(builder.Open(value(arrow::io::ReadableFile::Open(path.string()), ""), properties), "");
      check(builder.Build(&reader_), "");
      find_column(text_column, "text", false);
      if (!id_column.empty()) find_column(id_column, "id", true);
    });
  }

  bool next(Document& document) override {
    for (std::string_view text, id;;) {
      if (!texts_.next(text)) {
        if (!read_row_group()) return false;
        continue;
      }
      ids_.next(id);
      ++row_number_;
      if (text.empty()) continue;
      document.where = format_text("{}: row {}", path_.string(), row_number_);
      check_text(text, document.where);
      check_text(id, document.where);
      document.text = text;
      document.id = id;
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

  void find_column(const std::string& name, std::string_view what, bool or_number) {
    std::shared_ptr<arrow::Schema> schema;
    check(reader_->GetSchema(&schema), "");
    const std::shared_ptr<arrow::Field> field = schema->GetFieldByName(name);
    if (!field) {
      fail_input("{}: no column '{}' (the columns are {}): name the {}'s with --{}-column", path_.string(), name,
                 join_text(schema->field_names(), ", "), what, what);
    }
    if (!holds_strings(*field->type()) && !(or_number && arrow::is_integer(field->type()->id()))) {
      fail_input("{}: column '{}' holds {}, not strings", path_.string(), name, field->type()->ToString());
    }
    // A column of strings or numbers is one leaf, and has its name for a path.
    columns_.push_back(reader_->parquet_reader()->metadata()->schema()->ColumnIndex(name));
  }

  bool read_row_group() {
    if (row_group_ == reader_->num_row_groups()) return false;
    const std::string where = format_text("row group {}: ", row_group_);
    std::shared_ptr<arrow::Table> table;
    guarded(where, [&] { table = value(reader_->ReadRowGroup(row_group_, columns_), where); });
    const int64_t rows = reader_->parquet_reader()->metadata()->RowGroup(row_group_)->num_rows();
    if (table->num_rows() != rows)
      fail_input("{}: {}{} rows, expected {}", path_.string(), where, table->num_rows(), rows);
    ++row_group_;
    texts_ = ColumnCursor(table->GetColumnByName(text_column_));
    if (!id_column_.empty()) ids_ = ColumnCursor(table->GetColumnByName(id_column_));
    return true;
  }

  static void check_text(std::string_view text, const std::string& where) {
    if (text.size() > LineReader::kMaximumLineBytes)
      fail_input("{}: the document is longer than {} bytes: divide it", where, LineReader::kMaximumLineBytes);
    size_t bad = find_invalid_utf8(text);
    if (bad == std::string_view::npos) return;
    fail_input("{}: byte {} (0x{:02X}) is not valid UTF-8", where, bad + 1, static_cast<unsigned char>(text[bad]));
  }

  fs::path path_;
  std::string text_column_, id_column_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> columns_;
  int row_group_ = 0;
  int64_t row_number_ = 0;
  ColumnCursor texts_, ids_;
};

}  // namespace

std::unique_ptr<DocumentReader> open_parquet(const fs::path& path, const std::string& text_column,
                                             const std::string& id_column) {
  return std::make_unique<ParquetReader>(path, text_column, id_column);
}

}  // namespace depthroute
