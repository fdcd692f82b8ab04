// What the tests of this folder share: gzip files, text that is the same each time.
#pragma once
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "data/document_reader.h"
#include "io/error.h"
#include "io/file.h"
#include "io/test_folder.h"

namespace depthroute {

inline std::string gzip(const TestFolder& folder, std::string_view bytes) {
  std::filesystem::path path = folder / "gzip-scratch";
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  return read_file(path);
}

inline std::vector<Document> read_all(const std::filesystem::path& path, const DocumentOptions& options = {}) {
  std::vector<Document> documents;
  auto reader = open_documents(list_input_files({path}), options);
  for (Document document; reader->next(document);) documents.push_back(document);
  return documents;
}

// The one line of the InputError that `action` must throw.
template <typename Action>
std::string input_error(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << "an error is one line";
    return error.what();
  }
  ADD_FAILURE() << "no InputError";
  return "";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Documents of a few lines of made-up words, whose frequencies fall off as those of a language do.
inline std::vector<std::string> made_up_documents(size_t count, unsigned seed = 1) {
  constexpr std::string_view kSyllables[] = {"ba",  "ke",  "lo",  "mi",  "nu", "sta", "ther",
                                             "ing", "pro", "con", "del", "ax", "or",  "u"};
  std::mt19937 random(seed);  // its values are fixed by the standard, those of the distributions are not
  std::vector<std::string> words;
  for (int i = 0; i < 400; ++i) {
    std::string word;
    for (unsigned n = 1 + random() % 4; n > 0; --n) word += kSyllables[random() % std::size(kSyllables)];
    words.push_back(word);
  }
  std::vector<std::string> documents;
  for (size_t i = 0; i < count; ++i) {
    std::string text = "Entry " + std::to_string(i) + ",";
    for (unsigned n = 8 + random() % 20; n > 0; --n)
      text += (random() % 9 == 0 ? ".\n   " : " ") + words[(random() % 400) * (random() % 400) / 400];
    documents.push_back(text + ".");
  }
  return documents;
}

inline std::string joined(const std::vector<std::string>& documents) {
  std::string text;
  for (const std::string& document : documents) text += document + "\n\n";
  return text;
}

}  // namespace depthroute
