#include "data/split_reader.h"

namespace depthroute {

SplitReader::SplitReader(const std::vector<InputFile>& files, const DocumentOptions& documents,
                         const SplitRule& rule, int64_t duplicate_table_bytes)
    : rule_(rule), reader_(open_documents(files, documents)) {
  if (duplicate_table_bytes > 0) seen_.emplace(duplicate_table_bytes);
}

bool SplitReader::next() {
  while (reader_->next(document_)) {
    ++read_;
    key_ = rule_.key(document_.text);
    split_ = rule_.split_of(key_);
    SplitRecord& record = records_[static_cast<size_t>(split_)];
    const DocumentHash hash = document_hash(document_.text);
    if (seen_ && !seen_->insert(hash)) {
      ++record.duplicates;
      continue;
    }
    ++record.documents;
    record.text_bytes += static_cast<int64_t>(document_.text.size());
    hashes_[static_cast<size_t>(split_)].add(hash);
    return true;
  }
  return false;
}

int64_t SplitReader::documents() const {
  int64_t sum = 0;
  for (const SplitRecord& record : records_) sum += record.documents;
  return sum;
}

std::array<SplitRecord, 3> SplitReader::records() const {
  std::array<SplitRecord, 3> records = records_;
  for (size_t i = 0; i < records.size(); ++i) records[i].document_hash = hashes_[i].hex();
  return records;
}

}  // namespace depthroute
