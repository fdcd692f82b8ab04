#include "data/document_reader.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <utility>

#include "data/line_reader.h"
#include "data/parquet_reader.h"
#include "data/utf8.h"
#include "io/error.h"
#include "io/json.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::pair<std::string_view, DocumentFormat>, 5> kFormats = {
    {{"auto", DocumentFormat::kAuto},
     {"text", DocumentFormat::kText},
     {"jsonl", DocumentFormat::kJsonl},
     {"parquet", DocumentFormat::kParquet},
     {"gcide", DocumentFormat::kGcide}}};
constexpr std::array<std::pair<std::string_view, DocumentUnit>, 2> kUnits = {
    {{"paragraph", DocumentUnit::kParagraph}, {"file", DocumentUnit::kFile}}};

constexpr std::string_view kWhiteSpace = " \t\r\n\v\f";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(kWhiteSpace) == std::string_view::npos;
}

void remove_line_end(std::string& text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
}

void append_line_to(std::string& text, std::string_view line, const LineReader& lines) {
  if (text.size() + line.size() > LineReader::kMaximumLineBytes) {
    fail_input("{}: the document grows beyond {} bytes: divide it", lines.where(), LineReader::kMaximumLineBytes);
  }
  text += line;
}

void require_utf8(std::string_view line, const LineReader& lines) {
  size_t bad = find_invalid_utf8(line);
  if (bad == std::string_view::npos) return;
  fail_input("{}: byte {} (0x{:02X}) is not valid UTF-8: convert the file first, for example with iconv",
             lines.where(), bad + 1, static_cast<unsigned char>(line[bad]));
}

class ParagraphReader : public DocumentReader {
 public:
  explicit ParagraphReader(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}

  bool next(Document& document) override {
    document.text.clear();
    while (lines_->next(line_)) {
      require_utf8(line_, *lines_);
      if (is_blank(line_)) {
        if (document.text.empty()) continue;
        break;
      }
      if (document.text.empty()) document.where = lines_->where();
      append_line_to(document.text, line_, *lines_);
    }
    remove_line_end(document.text);
    return !document.text.empty();
  }

 private:
  std::unique_ptr<LineReader> lines_;
  std::string line_;
};

// The exact bytes of the file, its last line feed included.
class WholeFileReader : public DocumentReader {
 public:
  explicit WholeFileReader(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}

  bool next(Document& document) override {
    document.text.clear();
    while (lines_->next(line_)) {
      require_utf8(line_, *lines_);
      append_line_to(document.text, line_, *lines_);
    }
    document.where = lines_->path().string() + ":1";
    return !document.text.empty();
  }

 private:
  std::unique_ptr<LineReader> lines_;
  std::string line_;
};

class JsonlReader : public DocumentReader {
 public:
  JsonlReader(std::unique_ptr<LineReader> lines, const DocumentOptions& options)
      : lines_(std::move(lines)), text_column_(options.text_column), id_column_(options.id_column) {}

  bool next(Document& document) override {
    while (lines_->next(line_)) {
      if (is_blank(line_)) continue;
      require_utf8(line_, *lines_);
      read_line(document);
      if (document.text.empty()) continue;
      document.where = lines_->where();
      return true;
    }
    return false;
  }

 private:
  void read_line(Document& document) const {
    nlohmann::json value;
    try {
      value = nlohmann::json::parse(line_);
    } catch (const nlohmann::json::parse_error& error) {
      fail_input("{}: bad JSON near byte {} of the line (for plain text use --format text)", lines_->where(),
                 error.byte);
    } catch (const nlohmann::json::exception&) {  // a number beyond all range
      fail_input("{}: bad JSON: a value out of range", lines_->where());
    }
    if (!value.is_object()) fail_input("{}: a JSON object is expected, not {}", lines_->where(), value.type_name());
    nlohmann::json& text = find(value, text_column_, "text");
    if (!text.is_string()) {
      fail_input("{}: key '{}' holds {}, not a string", lines_->where(), text_column_, text.type_name());
    }
    document.text = std::move(text.get_ref<std::string&>());
    if (!id_column_.empty()) document.id = id_of(find(value, id_column_, "id"));
  }

  nlohmann::json& find(nlohmann::json& value, const std::string& key, std::string_view what) const {
    auto found = value.find(key);
    if (found == value.end()) {
      fail_input("{}: no key '{}' (the keys are {}): name the {}'s with --{}-column", lines_->where(), key,
                 keys_of(value), what, what);
    }
    return *found;
  }

  std::string id_of(const nlohmann::json& id) const {
    if (id.is_string()) return id.get<std::string>();
    if (id.is_number_integer()) return id.dump();
    if (id.is_null()) return {};
    fail_input("{}: key '{}' holds {}, not a string or a whole number", lines_->where(), id_column_,
               id.type_name());
  }

  static std::string keys_of(const nlohmann::json& value) {
    std::string names;
    int count = 0;
    for (const auto& [key, unused] : value.items()) {
      if (++count > 8) return names + ", ...";
      names += (names.empty() ? "'" : ", '") + key.substr(0, utf8_prefix(key, 40)) + "'";
    }
    return names.empty() ? "none" : names;
  }

  std::unique_ptr<LineReader> lines_;
  std::string text_column_, id_column_, line_;
};

// An entry begins with a line that is not indented, follows a blank line and holds a pronunciation between
// backslashes. What comes before the first such line describes the database; the first one alone follows no blank
// line. Compared with the package's own index this rule finds all but five of 126,000 entries. The file holds three
// bytes of another encoding, which become U+FFFD.
class GcideReader : public DocumentReader {
 public:
  explicit GcideReader(std::unique_ptr<LineReader> lines) : lines_(std::move(lines)) {}

  bool next(Document& document) override {
    if (entry_.empty() && !find_first_entry()) return false;
    document.text = std::exchange(entry_, {});
    document.where = std::move(entry_where_);
    bool after_blank = false;
    while (lines_->next(line_)) {
      if (after_blank && is_headword(line_)) {
        start_entry();
        break;
      }
      after_blank = is_blank(line_);
      append_line_to(document.text, line_, *lines_);
    }
    document.text.erase(document.text.find_last_not_of(kWhiteSpace) + 1);
    if (find_invalid_utf8(document.text) != std::string::npos) document.text = replace_invalid_utf8(document.text);
    return true;
  }

 private:
  static bool is_headword(std::string_view line) {
    return kWhiteSpace.find(line.front()) == std::string_view::npos && line.find('\\') != std::string_view::npos;
  }

  void start_entry() {
    entry_ = line_;
    entry_where_ = lines_->where();
  }

  bool find_first_entry() {
    while (lines_->next(line_)) {
      if (!is_headword(line_)) continue;
      start_entry();
      return true;
    }
    return false;
  }

  std::unique_ptr<LineReader> lines_;
  std::string line_, entry_, entry_where_;
};

DocumentFormat detect_format(LineReader& lines) {
  std::string_view head = lines.head();
  if (head.substr(0, 4096).find("\n00-database-info") != std::string_view::npos) return DocumentFormat::kGcide;
  size_t first = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return first != std::string_view::npos && head[first] == '{' ? DocumentFormat::kJsonl : DocumentFormat::kText;
}

std::unique_ptr<DocumentReader> open_file(const fs::path& path, const DocumentOptions& options) {
  const bool parquet = options.format == DocumentFormat::kParquet ||
                       (options.format == DocumentFormat::kAuto && file_begins_with(path, "PAR1"));
  if (parquet) return open_parquet(path, options.text_column, options.id_column);
  auto lines = std::make_unique<LineReader>(path);
  DocumentFormat format = options.format == DocumentFormat::kAuto ? detect_format(*lines) : options.format;
  if (format == DocumentFormat::kJsonl) return std::make_unique<JsonlReader>(std::move(lines), options);
  if (!options.id_column.empty())
    fail_input("{}: {} has no column '{}': leave out --id-column", path.string(), name_of(format),
               options.id_column);
  if (format == DocumentFormat::kGcide) return std::make_unique<GcideReader>(std::move(lines));
  if (options.unit == DocumentUnit::kFile) return std::make_unique<WholeFileReader>(std::move(lines));
  return std::make_unique<ParagraphReader>(std::move(lines));
}

class CorpusReader : public DocumentReader {
 public:
  CorpusReader(std::vector<InputFile> files, DocumentOptions options)
      : files_(std::move(files)), options_(std::move(options)) {}

  bool next(Document& document) override {
    while (true) {
      if (reader_ && reader_->next(document)) return true;
      if (next_file_ == files_.size()) return false;
      reader_ = open_file(files_[next_file_++].path, options_);
    }
  }

 private:
  std::vector<InputFile> files_;
  DocumentOptions options_;
  size_t next_file_ = 0;
  std::unique_ptr<DocumentReader> reader_;
};

// Patterns replaced by what they match; what matches nothing stays, for the message that there is no such file.
std::vector<fs::path> matching(const std::vector<fs::path>& inputs) {
  std::vector<fs::path> paths;
  for (const fs::path& input : inputs) {
    glob_t found = {};
    const bool pattern = !fs::exists(input) && glob(input.c_str(), 0, nullptr, &found) == 0;
    if (!pattern) paths.push_back(input);
    for (size_t i = 0; pattern && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
    globfree(&found);
  }
  return paths;
}

template <typename Names>
auto find_name(const Names& names, std::string_view name, std::string_view what) {
  std::string known;
  for (const auto& [text, value] : names) {
    if (text == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  fail_input("unknown {} '{}': it is one of {}", what, name, known);
}

template <typename Names, typename Value>
std::string_view find_value(const Names& names, Value value) {
  return std::find_if(names.begin(), names.end(), [&](const auto& entry) { return entry.second == value; })->first;
}

void add_folder(const fs::path& folder, std::vector<InputFile>& files) {
  size_t before = files.size();
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back({entry->path(), entry->path().lexically_relative(folder).generic_string()});
    }
  }
  if (error) fail_input("cannot read the folder '{}': {}", folder.string(), error.message());
  if (files.size() == before) fail_input("the folder '{}' holds no files", folder.string());
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
            [](const InputFile& a, const InputFile& b) { return a.name < b.name; });
}

}  // namespace

DocumentFormat document_format(std::string_view name) {
  return find_name(kFormats, name, "format");
}
DocumentUnit document_unit(std::string_view name) {
  return find_name(kUnits, name, "kind of document");
}
std::string_view name_of(DocumentFormat format) {
  return find_value(kFormats, format);
}
std::string_view name_of(DocumentUnit unit) {
  return find_value(kUnits, unit);
}

std::vector<InputFile> list_input_files(const std::vector<fs::path>& inputs) {
  std::vector<InputFile> files;
  for (const fs::path& input : matching(inputs)) {
    std::error_code error;
    fs::file_status status = fs::status(input, error);
    if (fs::is_directory(status)) {
      add_folder(input, files);
    } else if (fs::is_regular_file(status)) {
      files.push_back({input, input.filename().string()});
    } else if (fs::exists(status)) {
      fail_input("'{}' is neither a file nor a folder: the input is read twice, so give a file", input.string());
    } else {
      fail_input("no such file or folder: '{}'", input.string());
    }
  }
  return files;
}

std::unique_ptr<DocumentReader> open_documents(std::vector<InputFile> files, DocumentOptions options) {
  return std::make_unique<CorpusReader>(std::move(files), std::move(options));
}

}  // namespace depthroute
