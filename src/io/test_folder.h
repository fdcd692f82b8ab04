// A folder of its own for a test, gone afterwards.
#pragma once
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "io/file.h"

namespace depthroute {

class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "depthroute-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  // Writes a file, with its folders, and gives its path.
  std::filesystem::path file(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_file(path_ / name, bytes);
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

// The message of the exception of type E that `call` throws; "" if it throws none.
template <typename E, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace depthroute
