#include "data/prepare.h"

#include <algorithm>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "data/token_dataset.h"
#include "data/token_shard.h"
#include "data/tokenizer.h"
#include "data/tokenizer_trainer.h"
#include "io/checksum.h"
#include "io/error.h"
#include "io/file.h"
#include "io/format.h"
#include "io/progress.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTokenizerFile = "tokenizer.model";
constexpr size_t kBatchBytes = size_t{1} << 20;

void check_options(const PrepareOptions& options) {
  options.split.check();
  if (options.inputs.empty()) fail_input("no input is given");
  if (options.output.empty()) fail_input("no output folder is given");
  if (options.threads < 1 || options.threads > 1024)
    fail_input("{} threads are not possible: 1 to 1024", options.threads);
  if (options.sample_bytes < 0) fail_input("the sample's bytes must not be negative: {}", options.sample_bytes);
}

int64_t sample_bytes_of(const PrepareOptions& options) {
  if (options.sample_bytes > 0) return options.sample_bytes;
  return std::clamp<int64_t>(options.vocabulary_size * 512, 1 << 20, 16 << 20);
}

bool lies_within(const fs::path& path, const fs::path& folder) {
  fs::path relative = fs::weakly_canonical(path).lexically_relative(fs::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// Neither may contain the other: the output would be read as input, or replacing it would remove the input.
void check_apart(const PrepareOptions& options) {
  for (const fs::path& input : options.inputs) {
    if (!lies_within(input, options.output) && !(fs::is_directory(input) && lies_within(options.output, input)))
      continue;
    fail_input("the output folder '{}' and the input '{}' contain each other: choose another folder",
               options.output.string(), input.string());
  }
}

std::vector<InputRecord> record_inputs(const std::vector<InputFile>& files) {
  std::vector<InputRecord> records;
  for (const InputFile& file : files) {
    // As the manifest will say it: names of files may be any bytes, JSON is UTF-8.
    auto name = Json::parse(dump_json(file.name)).get<std::string>();
    records.push_back({name, static_cast<int64_t>(fs::file_size(file.path)), file_checksum(file.path)});
  }
  return records;
}

// Only options that shape the content: not the number of threads.
Json recipe_of(const PrepareOptions& options) {
  bool given = !options.tokenizer.empty();
  return {{"format", name_of(options.documents.format)},
          {"document", name_of(options.documents.unit)},
          {"text_column", options.documents.text_column},
          {"vocabulary_size", given ? Json() : Json(options.vocabulary_size)},
          {"sample_bytes", given ? Json() : Json(sample_bytes_of(options))},
          {"tokenizer", given ? Json(file_checksum(options.tokenizer)) : Json()},
          {"tokens_per_shard", options.tokens_per_shard}};
}

bool same_origin(const Manifest& manifest, const PrepareOptions& options, const Json& recipe,
                 const std::vector<InputRecord>& inputs) {
  return manifest.recipe == recipe && manifest.inputs == inputs && manifest.split_rule.seed == options.split.seed &&
         manifest.split_rule.fractions == options.split.fractions;
}

// The manifest of a complete folder made from the same inputs and options, if the output is one.
std::optional<Manifest> find_done(const PrepareOptions& options, const Json& recipe,
                                  const std::vector<InputRecord>& inputs) {
  const std::string name = options.output.string();
  if (!fs::exists(options.output)) return std::nullopt;
  if (!fs::is_directory(options.output)) fail_input("the output '{}' is there and not a folder", name);
  if (fs::is_empty(options.output)) return std::nullopt;
  // Never replace a folder that prepare did not make, whatever is asked for.
  if (!fs::exists(options.output / kManifestFile)) {
    fail_input("the output folder '{}' is not empty and holds no {}: choose another", name, kManifestFile);
  }
  if (options.overwrite) return std::nullopt;
  Manifest manifest = read_manifest(options.output);
  if (!same_origin(manifest, options, recipe, inputs)) {
    fail_input("the output folder '{}' was made from other inputs or options: choose another, or give --overwrite",
               name);
  }
  for (Split split : kSplits) {
    if (manifest[split].tokens > 0) TokenDataset::open(options.output, split);
  }
  return manifest;
}

void count_document(SplitRecord& record, const Document& document) {
  ++record.documents;
  record.text_bytes += static_cast<int64_t>(document.text.size());
}

struct Survey {
  std::array<SplitRecord, 3> splits;  // without tokens
  std::vector<std::string> sample;
  int64_t documents = 0;
};

void check_splits(const Survey& survey, const PrepareOptions& options) {
  if (survey.documents == 0) {
    std::vector<std::string> names;
    for (const fs::path& path : options.inputs) names.push_back(path.string());
    fail_input("no document in {}", join_text(names, ", "));
  }
  const SplitRule& rule = options.split;
  for (Split split : kSplits) {
    double fraction = rule.fractions[static_cast<size_t>(split)];
    if (fraction == 0 || survey.splits[static_cast<size_t>(split)].documents > 0) continue;
    fail_input(
        "none of the {} documents falls into the {} split ({} of them): give more documents, another --split (0 "
        "for no {} "
        "split) or another --seed",
        survey.documents, name_of(split), fraction, name_of(split));
  }
}

// The first pass.
Survey survey_documents(const PrepareOptions& options, const std::vector<InputFile>& files) {
  Survey survey;
  std::array<DocumentSetHash, 3> hashes;
  const bool train_tokenizer = options.tokenizer.empty();
  DocumentSampler sampler(static_cast<uint64_t>(sample_bytes_of(options)));
  Progress progress("reading", 0, "documents");
  auto reader = open_documents(files, options.documents);
  for (Document document; reader->next(document);) {
    uint64_t key = options.split.key(document.text);
    Split split = options.split.split_of(key);
    count_document(survey.splits[static_cast<size_t>(split)], document);
    hashes[static_cast<size_t>(split)].add(document.text);
    if (train_tokenizer && split == Split::kTrain) sampler.add(key, document.text);
    progress.update(++survey.documents);
  }
  progress.finish();
  for (size_t i = 0; i < hashes.size(); ++i) survey.splits[i].document_hash = hashes[i].hex();
  survey.sample = sampler.take();
  check_splits(survey, options);
  return survey;
}

Tokenizer make_tokenizer(const PrepareOptions& options, std::vector<std::string> sample) {
  if (!options.tokenizer.empty()) return Tokenizer::load(options.tokenizer);
  int64_t bytes = 0;
  for (const std::string& text : sample) bytes += static_cast<int64_t>(text.size());
  Progress progress("training the tokenizer", 0, "bytes");
  Tokenizer tokenizer = Tokenizer::from_bytes(train_tokenizer(sample, options.vocabulary_size), kTokenizerFile);
  progress.update(bytes);
  progress.finish(format_text("{} pieces", tokenizer.size()));
  return tokenizer;
}

struct Batch {
  std::vector<std::pair<Split, std::string>> documents;
};
using BatchTokens = std::array<std::vector<uint16_t>, 3>;

BatchTokens encode_batch(const Tokenizer& tokenizer, TokenEncoder& encoder, const Batch& batch) {
  BatchTokens tokens;
  std::vector<int32_t> ids;
  for (const auto& [split, text] : batch.documents) {
    ids.clear();
    encoder.encode(text, ids);
    ids.push_back(tokenizer.separator());
    auto& out = tokens[static_cast<size_t>(split)];
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return tokens;
}

// Encodes batches in threads and hands back their tokens in the order of the batches.
class EncoderPool {
 public:
  EncoderPool(const Tokenizer& tokenizer, int threads) : tokenizer_(tokenizer) {
    for (int i = 0; i < threads; ++i) encoders_.emplace_back(std::make_unique<TokenEncoder>(tokenizer));
  }
  bool full() const { return running_.size() == encoders_.size(); }
  bool empty() const { return running_.empty(); }

  // An encoder serves every n-th batch; the batch before it in the same place is done, since the pool is not full.
  void start(Batch batch) {
    TokenEncoder& encoder = *encoders_[started_++ % encoders_.size()];
    running_.push_back(std::async(std::launch::async, [this, &encoder, batch = std::move(batch)] {
      return encode_batch(tokenizer_, encoder, batch);
    }));
  }
  BatchTokens take() {
    BatchTokens tokens = running_.front().get();
    running_.pop_front();
    return tokens;
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::unique_ptr<TokenEncoder>> encoders_;
  size_t started_ = 0;
  std::deque<std::future<BatchTokens>> running_;  // the last member: destroyed, and so waited for, first
};

class SplitWriters {
 public:
  SplitWriters(const fs::path& folder, int64_t tokens_per_shard) {
    for (Split split : kSplits) writers_.emplace_back(folder, std::string(name_of(split)), tokens_per_shard);
  }
  void write(const BatchTokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) writers_[i].write(tokens[i]);
  }
  void finish(std::array<SplitRecord, 3>& records) {
    for (size_t i = 0; i < records.size(); ++i) {
      records[i].shards = writers_[i].finish();
      for (const ShardRecord& shard : records[i].shards) records[i].tokens += shard.tokens;
    }
  }

 private:
  std::vector<ShardWriter> writers_;
};

// One batch of documents; false at the end. `hashes` take part of every document.
bool read_batch(DocumentReader& reader, const SplitRule& rule, std::array<DocumentSetHash, 3>& hashes,
                Batch& batch) {
  batch.documents.clear();
  size_t bytes = 0;
  for (Document document; bytes < kBatchBytes && reader.next(document);) {
    Split split = rule.split_of(rule.key(document.text));
    hashes[static_cast<size_t>(split)].add(document.text);
    bytes += document.text.size();
    batch.documents.emplace_back(split, std::move(document.text));
  }
  return !batch.documents.empty();
}

void check_unchanged(const std::array<DocumentSetHash, 3>& hashes, const Survey& survey) {
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].hex() != survey.splits[i].document_hash)
      fail_run("an input file has changed while it was being read: start again");
  }
}

// The second pass: fills the folder with shards and the survey's splits with their records.
void write_shards(const PrepareOptions& options, const std::vector<InputFile>& files, const Tokenizer& tokenizer,
                  const fs::path& folder, Survey& survey) {
  SplitWriters writers(folder, options.tokens_per_shard);
  EncoderPool pool(tokenizer, options.threads);
  std::array<DocumentSetHash, 3> hashes;
  Progress progress("encoding", survey.documents, "documents");
  auto reader = open_documents(files, options.documents);
  int64_t done = 0;
  for (Batch batch; read_batch(*reader, options.split, hashes, batch);) {
    if (pool.full()) writers.write(pool.take());
    done += static_cast<int64_t>(batch.documents.size());
    pool.start(std::move(batch));
    progress.update(done);
  }
  while (!pool.empty()) writers.write(pool.take());
  progress.finish();
  check_unchanged(hashes, survey);
  writers.finish(survey.splits);
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  check_options(options);
  const std::vector<InputFile> files = list_input_files(options.inputs);
  check_apart(options);
  const std::vector<InputRecord> inputs = record_inputs(files);
  const Json recipe = recipe_of(options);
  if (auto manifest = find_done(options, recipe, inputs)) return {std::move(*manifest), true};

  Survey survey = survey_documents(options, files);
  const Tokenizer tokenizer = make_tokenizer(options, std::move(survey.sample));
  AtomicFolder folder(options.output);
  write_shards(options, files, tokenizer, folder.temporary(), survey);
  write_file(folder.temporary() / kTokenizerFile, tokenizer.bytes());
  Manifest manifest{kTokenizerFile, tokenizer.hash(), tokenizer.size(), tokenizer.separator(),
                    options.split,  survey.splits,    recipe,           inputs};
  write_manifest(folder.temporary(), manifest);
  folder.commit();
  return {std::move(manifest), false};
}

}  // namespace depthroute
