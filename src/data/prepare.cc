#include "data/prepare.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "data/split_reader.h"
#include "data/split_writer.h"
#include "data/token_dataset.h"
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
constexpr const char* kStateFile = "progress.json";
constexpr int64_t kBatchBytes = int64_t{1} << 20;

void check_options(const PrepareOptions& options) {
  options.split.check();
  if (options.inputs.empty()) fail_input("no input is given");
  if (options.output.empty()) fail_input("no output folder is given");
  if (options.threads < 1 || options.threads > 1024)
    fail_input("{} threads are not possible: 1 to 1024", options.threads);
  if (!(options.save_interval >= 0))
    fail_input("the interval of saves must not be negative: {}", options.save_interval);
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

std::vector<FileRecord> record_inputs(const std::vector<InputFile>& files) {
  std::vector<FileRecord> records;
  int64_t total = 0, done = 0;
  for (const InputFile& file : files) total += static_cast<int64_t>(fs::file_size(file.path));
  Progress progress("checking the inputs", total, "bytes");
  for (const InputFile& file : files) {
    // As the manifest will say it: names of files may be any bytes, JSON is UTF-8.
    auto name = Json::parse(dump_json(file.name)).get<std::string>();
    records.push_back({name, static_cast<int64_t>(fs::file_size(file.path)), file_checksum(file.path)});
    progress.update(done += records.back().bytes);
  }
  return records;
}

// Only options that shape the content: not the number of threads.
Json recipe_of(const PrepareOptions& options) {
  bool given = !options.tokenizer.empty();
  Json recipe = json_object({{"format", name_of(options.documents.format)},
                             {"document", name_of(options.documents.unit)},
                             {"text_column", options.documents.text_column},
                             {"vocabulary_size", given ? Json() : Json(options.vocabulary_size)},
                             {"sample_bytes", given ? Json() : Json(sample_bytes_of(options))},
                             {"tokenizer", given ? Json(file_checksum(options.tokenizer)) : Json()},
                             {"tokens_per_shard", options.tokens_per_shard}});
  if (!options.documents.id_column.empty()) recipe["id_column"] = options.documents.id_column;
  if (options.deduplicate) recipe["deduplicate"] = true;
  return recipe;
}

// What a folder is made of.
struct Origin {
  SplitRule split;
  Json recipe;
  std::vector<FileRecord> inputs;

  bool same_options(const Manifest& manifest) const {
    return manifest.recipe == recipe && manifest.split_rule.seed == split.seed &&
           manifest.split_rule.fractions == split.fractions;
  }
};

// The manifest of a complete folder made from the same inputs and options, if the output is one.
std::optional<Manifest> find_done(const PrepareOptions& options, const Origin& origin) {
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
  if (!origin.same_options(manifest) || manifest.inputs != origin.inputs) {
    fail_input("the output folder '{}' was made from other inputs or options: choose another, or give --overwrite",
               name);
  }
  for (Split split : kSplits) {
    if (manifest[split].tokens > 0) TokenDataset::open(options.output, split);
  }
  return manifest;
}

void check_splits(const SplitReader& reader, const PrepareOptions& options) {
  if (reader.documents() == 0) {
    std::vector<std::string> names;
    for (const fs::path& path : options.inputs) names.push_back(path.string());
    fail_input("no document in {}", join_text(names, ", "));
  }
  const std::array<SplitRecord, 3> records = reader.records();
  for (Split split : kSplits) {
    const double fraction = options.split.fractions[static_cast<size_t>(split)];
    if (fraction == 0 || records[static_cast<size_t>(split)].documents > 0) continue;
    fail_input(
        "none of the {} documents falls into the {} split ({} of them): give more documents, another --split (0 "
        "for no {} split) or another --seed",
        reader.documents(), name_of(split), fraction, name_of(split));
  }
}

SplitReader open_splits(const PrepareOptions& options, const std::vector<InputFile>& files) {
  return SplitReader(files, options.documents, options.split, options.deduplicate ? options.deduplicate_bytes : 0);
}

struct Survey {
  std::array<SplitRecord, 3> splits;  // without tokens
  std::vector<std::string> sample;
};

// The first pass.
Survey survey_documents(const PrepareOptions& options, const std::vector<InputFile>& files) {
  const bool train_tokenizer = options.tokenizer.empty();
  DocumentSampler sampler(static_cast<uint64_t>(sample_bytes_of(options)));
  Progress progress("reading", 0, "documents");
  SplitReader reader = open_splits(options, files);
  while (reader.next()) {
    if (train_tokenizer && reader.split() == Split::kTrain) sampler.add(reader.key(), reader.document().text);
    progress.update(reader.read());
  }
  progress.finish();
  check_splits(reader, options);
  return {reader.records(), sampler.take()};
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

// What the unfinished folder holds: the manifest as far as it is known, and how far the second pass is.
struct State {
  Manifest manifest;
  int64_t documents_read = 0;  // those whose tokens are in the shards, or that were left out before them
};

void save_state(const fs::path& folder, const State& state) {
  write_json(folder / kStateFile,
             json_object({{"documents_read", state.documents_read}, {"manifest", to_json(state.manifest)}}));
}

struct EncodedBatch {
  std::array<EncodedDocuments, 3> splits;
  int64_t documents_read = 0, text_bytes = 0;
};

// Writes batches in their order, and every few seconds the state after the last.
class StateWriter {
 public:
  StateWriter(const PrepareOptions& options, const fs::path& folder, State& state)
      : folder_(folder), state_(state), interval_(options.save_interval), saved_(Clock::now()) {
    for (Split split : kSplits) {
      writers_.push_back(std::make_unique<SplitWriter>(
          folder, split, options.tokens_per_shard, !options.documents.id_column.empty(), state.manifest[split]));
    }
  }

  void write(const EncodedBatch& batch) {
    for (size_t i = 0; i < writers_.size(); ++i) writers_[i]->write(batch.splits[i]);
    state_.documents_read = batch.documents_read;
    if (std::chrono::duration<double>(Clock::now() - saved_).count() < interval_) return;
    for (size_t i = 0; i < writers_.size(); ++i) writers_[i]->save(state_.manifest.splits[i]);
    save_state(folder_, state_);
    saved_ = Clock::now();
  }

  void finish() {
    for (size_t i = 0; i < writers_.size(); ++i) writers_[i]->finish(state_.manifest.splits[i]);
  }

 private:
  using Clock = std::chrono::steady_clock;
  fs::path folder_;
  State& state_;
  double interval_;
  Clock::time_point saved_;
  std::vector<std::unique_ptr<SplitWriter>> writers_;
};

// The first input that is not as it was.
std::optional<std::string> changed_input(const std::vector<FileRecord>& before,
                                         const std::vector<FileRecord>& now) {
  for (size_t i = 0; i < std::max(before.size(), now.size()); ++i) {
    if (i < before.size() && i < now.size() && before[i] == now[i]) continue;
    return i < now.size() ? now[i].file : before[i].file;
  }
  return std::nullopt;
}

// What an earlier process left. InputError or RunError where it is of something else, or damaged.
State read_state(const PrepareOptions& options, const Origin& origin, const fs::path& folder) {
  const std::string where = (folder / kStateFile).string();
  const Json value = read_json(folder / kStateFile);
  State state{manifest_from_json(json_get<Json>(value, "manifest", where), where),
              json_get<int64_t>(value, "documents_read", where)};
  if (!origin.same_options(state.manifest)) fail_input("the options are others");
  if (const auto input = changed_input(state.manifest.inputs, origin.inputs))
    fail_input("the input '{}' has changed", *input);
  if (file_checksum(folder / kTokenizerFile) != state.manifest.tokenizer_hash)
    fail_input("'{}' has changed since it was written", (folder / kTokenizerFile).string());
  StateWriter check(options, folder, state);
  return state;
}

// The state that an earlier process left, if it came as far as to save one.
std::optional<State> find_state(const PrepareOptions& options, const Origin& origin, const fs::path& folder) {
  if (!fs::exists(folder / kStateFile)) return std::nullopt;
  try {
    return read_state(options, origin, folder);
  } catch (const std::exception& error) {
    if (options.overwrite) return std::nullopt;
    fail_input("'{}' was begun, not finished, and cannot be continued: {}; give --overwrite to start again",
               options.output.string(), error.what());
  }
}

// The manifest where an earlier process had finished all but putting the folder in place.
std::optional<Manifest> find_complete(const Origin& origin, const fs::path& folder) {
  if (!fs::exists(folder / kManifestFile) || fs::exists(folder / kStateFile)) return std::nullopt;
  Manifest manifest = read_manifest(folder);
  if (!origin.same_options(manifest) || manifest.inputs != origin.inputs) return std::nullopt;
  return manifest;
}

// The beginning of the second pass: an earlier one continued, or the first pass and the tokenizer.
State begin(const PrepareOptions& options, const std::vector<InputFile>& files, const Origin& origin,
            ContinuedFolder& folder) {
  if (fs::exists(folder.temporary() / kStateFile)) folder.keep();
  if (auto state = find_state(options, origin, folder.temporary())) return std::move(*state);
  folder.clear();
  Survey survey = survey_documents(options, files);
  const Tokenizer tokenizer = make_tokenizer(options, std::move(survey.sample));
  write_file(folder.temporary() / kTokenizerFile, tokenizer.bytes());
  write_json(folder.temporary() / "tokenizer_config.json", tokenizer.hugging_face_config());
  State state{{kTokenizerFile, tokenizer.hash(), tokenizer.size(), tokenizer.separator(), options.split,
               survey.splits, origin.recipe, origin.inputs}};
  save_state(folder.temporary(), state);
  folder.keep();
  return state;
}

struct Batch {
  std::vector<std::pair<Split, Document>> documents;
  int64_t documents_read = 0;  // by the reader when the batch was complete
  int64_t text_bytes = 0;
};

EncodedBatch encode_batch(const Tokenizer& tokenizer, TokenEncoder& encoder, const Batch& batch, bool with_ids) {
  EncodedBatch encoded{{}, batch.documents_read, batch.text_bytes};
  std::vector<int32_t> tokens;
  for (const auto& [split, document] : batch.documents) {
    tokens.clear();
    encoder.encode(document.text, tokens);
    tokens.push_back(tokenizer.separator());
    EncodedDocuments& out = encoded.splits[static_cast<size_t>(split)];
    out.add(tokens);
    if (with_ids) out.ids += dump_json(document.id) + "\n";
  }
  return encoded;
}

// Encodes batches in threads and hands back their tokens in the order of the batches. It is full while all threads are
// busy, so that the reader waits for them.
class EncoderPool {
 public:
  EncoderPool(const Tokenizer& tokenizer, int threads, bool with_ids) : tokenizer_(tokenizer), with_ids_(with_ids) {
    for (int i = 0; i < threads; ++i) encoders_.emplace_back(std::make_unique<TokenEncoder>(tokenizer));
  }
  bool full() const { return running_.size() == encoders_.size(); }
  bool empty() const { return running_.empty(); }

  // An encoder serves every n-th batch; the batch before it in the same place is done, since the pool is not full.
  void start(Batch batch) {
    TokenEncoder& encoder = *encoders_[started_++ % encoders_.size()];
    running_.push_back(std::async(std::launch::async, [this, &encoder, batch = std::move(batch)] {
      return encode_batch(tokenizer_, encoder, batch, with_ids_);
    }));
  }
  EncodedBatch take() {
    EncodedBatch batch = running_.front().get();
    running_.pop_front();
    return batch;
  }

 private:
  const Tokenizer& tokenizer_;
  bool with_ids_;
  std::vector<std::unique_ptr<TokenEncoder>> encoders_;
  size_t started_ = 0;
  std::deque<std::future<EncodedBatch>> running_;  // the last member: destroyed, and so waited for, first
};

// One batch of documents; false at the end.
bool read_batch(SplitReader& reader, Batch& batch) {
  batch = {};
  while (batch.text_bytes < kBatchBytes && reader.next()) {
    batch.text_bytes += static_cast<int64_t>(reader.document().text.size());
    batch.documents.emplace_back(reader.split(), std::move(reader.document()));
  }
  batch.documents_read = reader.read();
  return !batch.documents.empty();
}

// Reads the documents that are encoded already; their bytes.
int64_t skip_documents(SplitReader& reader, int64_t documents) {
  int64_t bytes = 0;
  Progress progress("passing over what is done", documents, "documents");
  while (reader.read() < documents && reader.next()) {
    bytes += static_cast<int64_t>(reader.document().text.size());
    progress.update(reader.read());
  }
  if (documents > 0) progress.finish();
  return bytes;
}

// Both passes must have seen the same.
void check_unchanged(const SplitReader& reader, const State& state, const std::vector<InputFile>& files) {
  const std::array<SplitRecord, 3> records = reader.records();
  for (size_t i = 0; i < records.size(); ++i) {
    const SplitRecord& before = state.manifest.splits[i];
    if (records[i].document_hash == before.document_hash && records[i].documents == before.documents) continue;
    const auto input = changed_input(state.manifest.inputs, record_inputs(files));
    fail_run("the input '{}' has changed while it was being read: start again with --overwrite",
             input.value_or("?"));
  }
}

// The second pass: fills the folder with shards and the manifest with their records.
void encode_documents(const PrepareOptions& options, const std::vector<InputFile>& files,
                      const Tokenizer& tokenizer, const fs::path& folder, State& state) {
  int64_t total = 0;
  for (const SplitRecord& record : state.manifest.splits) total += record.text_bytes;
  SplitReader reader = open_splits(options, files);
  int64_t done = skip_documents(reader, state.documents_read);
  StateWriter writer(options, folder, state);
  EncoderPool pool(tokenizer, options.threads, !options.documents.id_column.empty());
  Progress progress("encoding", total, "bytes");
  progress.set_start(done);
  const auto write_next = [&] {
    const EncodedBatch batch = pool.take();
    writer.write(batch);
    progress.update(done += batch.text_bytes);
  };
  for (Batch batch; read_batch(reader, batch);) {
    if (pool.full()) write_next();
    pool.start(std::move(batch));
  }
  while (!pool.empty()) write_next();
  progress.finish();
  check_unchanged(reader, state, files);
  writer.finish();
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  check_options(options);
  const std::vector<InputFile> files = list_input_files(options.inputs);
  check_apart(options);
  const Origin origin{options.split, recipe_of(options), record_inputs(files)};
  if (auto manifest = find_done(options, origin)) return {std::move(*manifest), true};

  ContinuedFolder folder(options.output);
  if (auto manifest = find_complete(origin, folder.temporary())) {
    folder.commit();
    return {std::move(*manifest), false};
  }
  State state = begin(options, files, origin, folder);
  const Tokenizer tokenizer = Tokenizer::load(folder.temporary() / kTokenizerFile);
  encode_documents(options, files, tokenizer, folder.temporary(), state);
  write_manifest(folder.temporary(), state.manifest);
  fs::remove(folder.temporary() / kStateFile);
  folder.commit();
  return {std::move(state.manifest), false};
}

}  // namespace depthroute
