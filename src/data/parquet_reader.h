// Documents out of a parquet file. The only place that includes Arrow's headers, which are heavy.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "data/document_reader.h"

namespace depthroute {

// Row groups one after another, the columns named alone (`id_column` may be empty); nulls and empty texts are left out. InputError, naming the file
// and the row group or row, where the file is truncated or damaged, has no such column or one that holds no strings, or a
// text is not valid UTF-8.
std::unique_ptr<DocumentReader> open_parquet(const std::filesystem::path& path, const std::string& text_column,
                                             const std::string& id_column);

}  // namespace depthroute
