#include "data/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "data/data_show.h"
#include "data/data_stats.h"
#include "data/test_support.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "io/json.h"

namespace depthroute {
namespace fs = std::filesystem;
namespace {

PrepareOptions options_for(const fs::path& input, const fs::path& output) {
  PrepareOptions options;
  options.inputs = {input};
  options.output = output;
  options.split = {3, {0.8, 0.1, 0.1}};
  options.vocabulary_size = 500;
  return options;
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = read_file(entry.path());
  }
  return files;
}

std::vector<int64_t> all_tokens(const TokenDataset& dataset) {
  std::vector<int64_t> tokens(static_cast<size_t>(dataset.tokens()));
  dataset.copy(0, dataset.tokens(), tokens.data());
  return tokens;
}

class Prepare : public testing::Test {
 protected:
  TestFolder folder;
  std::vector<std::string> documents = made_up_documents(1500);
  fs::path input = folder.file("in/corpus.txt", paragraphs());
  PrepareOptions options = options_for(input, folder / "out");

  // A blank line would divide a document, and made-up documents hold none.
  std::string paragraphs() const { return joined(documents); }
  void expect_nothing_left() {
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      EXPECT_TRUE(entry.path().filename() == "in" || entry.path().filename() == "out") << entry.path();
    }
  }
};

TEST_F(Prepare, ShardsAreTheEncodedDocumentsOfEachSideInOrder) {
  options.tokens_per_shard = 1000;
  PrepareResult result = prepare(options);
  EXPECT_FALSE(result.already_done);
  Tokenizer tokenizer = Tokenizer::load(folder / "out/tokenizer.model");
  EXPECT_EQ(read_json(folder / "out/tokenizer_config.json")["eos_token"], "</s>");
  EXPECT_EQ(tokenizer.size(), 500);
  int64_t total = 0;
  for (Split split : kSplits) {
    std::vector<int64_t> expected;
    int64_t count = 0, bytes = 0;
    for (const std::string& text : documents) {
      if (options.split.split_of(options.split.key(text)) != split) continue;
      for (int32_t id : tokenizer.encode(text)) expected.push_back(id);
      expected.push_back(2);
      ++count;
      bytes += static_cast<int64_t>(text.size());
    }
    TokenDataset dataset = TokenDataset::open(options.output, split);
    EXPECT_EQ(all_tokens(dataset), expected);
    EXPECT_EQ(dataset.documents(), count);
    EXPECT_EQ(dataset.text_bytes(), bytes);
    EXPECT_EQ(dataset.vocabulary_size(), 500);
    EXPECT_EQ(dataset.tokenizer_path(), folder / "out/tokenizer.model");
    EXPECT_EQ(static_cast<int64_t>(result.manifest[split].shards.size()), (dataset.tokens() + 999) / 1000);
    total += count;
  }
  EXPECT_EQ(total, 1500);
  expect_nothing_left();
}

TEST_F(Prepare, TheBytesDoNotDependOnThreadsOrPlace) {
  std::vector<std::string> many = made_up_documents(30'000, 5);  // several batches
  options.inputs = {folder.file("in/many.txt", joined(many))};
  prepare(options);
  auto once = contents(options.output);
  for (int threads : {2, 5}) {
    options.output = folder / "in/again" / std::to_string(threads);
    options.threads = threads;
    prepare(options);
    EXPECT_EQ(contents(options.output), once);
  }
}

TEST_F(Prepare, TheOrderOfFilesChangesNeitherSplitNorTokenizer) {
  std::vector<std::string> first(documents.begin(), documents.begin() + 700),
      second(documents.begin() + 700, documents.end());
  fs::path a = folder.file("in/a.txt", joined(first)), b = folder.file("in/b.txt", joined(second));
  options.inputs = {a, b};
  options.sample_bytes = 20'000;
  Manifest forward = prepare(options).manifest;
  options.inputs = {b, a};
  options.output = folder / "in/other";
  Manifest backward = prepare(options).manifest;
  EXPECT_EQ(forward.tokenizer_hash, backward.tokenizer_hash);
  for (Split split : kSplits) {
    EXPECT_EQ(forward[split].document_hash, backward[split].document_hash);
    EXPECT_EQ(forward[split].tokens, backward[split].tokens);
  }
  EXPECT_NE(forward[Split::kTrain].shards[0].checksum, backward[Split::kTrain].shards[0].checksum);
}

TEST_F(Prepare, TheTokenizerLearnsFromTheTrainingSplitAlone) {
  prepare(options);
  std::vector<std::string> training;
  for (const std::string& text : documents) {
    if (options.split.split_of(options.split.key(text)) == Split::kTrain) training.push_back(text);
  }
  options.inputs = {folder.file("in/training.txt", joined(training))};
  options.split.fractions = {1, 0, 0};
  options.output = folder / "in/training-only";
  Manifest alone = prepare(options).manifest;
  EXPECT_EQ(alone.tokenizer_hash, read_manifest(folder / "out").tokenizer_hash);
  EXPECT_TRUE(alone[Split::kTest].shards.empty());
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(options.output, Split::kTest); }), "no test split"));
}

TEST_F(Prepare, AgainIsDoneAndOtherwiseRefusedOrReplaced) {
  prepare(options);
  auto before = contents(options.output);
  options.threads = 3;
  EXPECT_TRUE(prepare(options).already_done);
  EXPECT_EQ(contents(options.output), before);

  PrepareOptions other = options;
  other.split.seed = 4;
  EXPECT_TRUE(contains(input_error([&] { prepare(other); }), "--overwrite"));
  other = options;
  other.vocabulary_size = 490;
  EXPECT_TRUE(contains(input_error([&] { prepare(other); }), "--overwrite"));
  EXPECT_EQ(contents(options.output), before);

  write_file(input, paragraphs() + "One more document.\n");
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "--overwrite"));
  options.overwrite = true;
  EXPECT_FALSE(prepare(options).already_done);
  EXPECT_NE(contents(options.output), before);
  expect_nothing_left();
}

TEST_F(Prepare, AFailureLeavesWhatWasThere) {
  prepare(options);
  auto before = contents(options.output);
  write_file(input, paragraphs() +
                        "\n\nfa\xE7"
                        "ade\n");
  options.overwrite = true;
  EXPECT_THROW(prepare(options), InputError);
  EXPECT_EQ(contents(options.output), before);
  expect_nothing_left();
}

TEST_F(Prepare, NeverReplacesAFolderItDidNotMake) {
  folder.file("out/precious.txt", "x");
  options.overwrite = true;
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "choose another"));
  EXPECT_EQ(read_file(folder / "out/precious.txt"), "x");
  options.output = input;
  EXPECT_THROW(prepare(options), InputError);
  options.output = folder / "in";  // holds the input
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "contain each other"));
  options.inputs = {folder / "in"};
  options.output = folder / "in/out";
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "contain each other"));
}

TEST_F(Prepare, TooFewDocumentsAreOneClearError) {
  options.inputs = {folder.file("in/one.txt", "Only one document.\n")};
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "none of the 1 documents falls into the"));
  options.inputs = {folder.file("in/none.txt", "\n\n\n")};
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "no document in"));
  options.inputs = {input};
  options.vocabulary_size = 40'000;
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "set --vocabulary-size "));
  options.vocabulary_size = 500;
  options.split.fractions = {0.5, 0.5, 0.5};
  EXPECT_THROW(prepare(options), InputError);
  EXPECT_FALSE(fs::exists(options.output));
  expect_nothing_left();
}

TEST_F(Prepare, TakesATokenizerAsItIs) {
  prepare(options);
  PrepareOptions reuse = options;
  reuse.tokenizer = folder / "out/tokenizer.model";
  reuse.inputs = {folder.file("in/new.jsonl", "{\"text\": \"" + documents[0] + " Zoo\"}\n")};
  EXPECT_THROW(prepare(reuse), InputError);  // the raw line feed in the JSON string
  reuse.inputs = {folder.file("in/new.jsonl", Json{{"text", documents[0]}}.dump() + "\n")};
  reuse.split.fractions = {1, 0, 0};
  reuse.output = folder / "in/reused";
  Manifest manifest = prepare(reuse).manifest;
  EXPECT_EQ(manifest.tokenizer_hash, read_manifest(options.output).tokenizer_hash);
  EXPECT_TRUE(prepare(reuse).already_done);
}

TEST_F(Prepare, DatasetChecksTheFolder) {
  prepare(options);
  EXPECT_NO_THROW(TokenDataset::open(options.output, Split::kTrain, 500));
  EXPECT_TRUE(
      contains(input_error([&] { TokenDataset::open(options.output, Split::kTrain, 501); }), "vocabulary of 500"));

  const fs::path shard = options.output / "val-00000.bin", model = options.output / "tokenizer.model";
  const std::string tokens = read_file(shard), bytes = read_file(model);
  write_file(shard, tokens.substr(0, tokens.size() - 2));
  EXPECT_TRUE(
      contains(input_error([&] { TokenDataset::open(options.output, Split::kValidation); }), "val-00000.bin"));
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "val-00000.bin")) << "a damaged folder is not done";
  std::string flipped = tokens;
  flipped[1500] ^= 1;
  write_file(shard, flipped);
  EXPECT_NO_THROW(data_stats(options.output, false));
  EXPECT_TRUE(contains(input_error([&] { data_stats(options.output, true); }), "val-00000.bin' has changed"));
  write_file(shard, tokens);
  EXPECT_NO_THROW(data_stats(options.output, true));
  write_file(model, bytes + "x");
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(options.output, Split::kTrain); }), "tokenizer.model"));
}

TEST_F(Prepare, StatsAgreeWithTheData) {
  prepare(options);
  DataStats stats = data_stats(options.output, true);
  Json json = to_json(stats);
  for (Split split : kSplits) {
    TokenDataset dataset = TokenDataset::open(options.output, split);
    const Json& side = json["splits"][std::string(name_of(split))];
    EXPECT_EQ(side["tokens"], dataset.tokens());
    EXPECT_EQ(side["data_hash"], dataset.data_hash());
    EXPECT_DOUBLE_EQ(side["bytes_per_token"].get<double>() * static_cast<double>(dataset.tokens()),
                     static_cast<double>(dataset.text_bytes()));
    EXPECT_TRUE(contains(to_text(stats), std::to_string(dataset.tokens())));
  }
  EXPECT_TRUE(json["verified"].get<bool>());
}

// The n-th document of a side out of the shards is the n-th of that side in the corpus, with its identifier.
TEST_F(Prepare, EachDocumentCanBeShown) {
  std::string lines;
  for (size_t i = 0; i < documents.size(); ++i) {
    const Json id = i % 5 == 0 ? Json(i) : i % 7 == 0 ? Json() : Json("urn:\n" + std::to_string(i));
    lines += Json{{"text", documents[i]}, {"id", id}}.dump() + "\n";
  }
  options.inputs = {folder.file("in/with-ids.jsonl", lines)};
  options.documents.id_column = "id";
  options.tokens_per_shard = 1000;
  prepare(options);
  std::array<int64_t, 3> index{};
  for (size_t i = 0; i < documents.size(); ++i) {
    const Split split = options.split.split_of(options.split.key(documents[i]));
    const int64_t at = index[static_cast<size_t>(split)]++;
    if (i % 37 != 0 && split == Split::kTrain) continue;
    const ShownDocument shown = show_document(options.output, split, at);
    EXPECT_EQ(shown.text, documents[i]);
    EXPECT_EQ(shown.id, i % 5 == 0 ? std::to_string(i) : i % 7 == 0 ? "" : "urn:\n" + std::to_string(i));
    EXPECT_TRUE(contains(to_text(shown), documents[i]));
    EXPECT_EQ(to_json(shown)["text"], documents[i]);
  }
  for (int64_t bad : {int64_t{-1}, index[1], INT64_MAX})
    EXPECT_TRUE(contains(input_error([&] { show_document(options.output, Split::kValidation, bad); }),
                         "there is none with the number " + std::to_string(bad)));
  EXPECT_NO_THROW(data_stats(options.output, true));
  write_file(options.output / "val-ids.jsonl", "\"a\"\n");
  EXPECT_TRUE(contains(input_error([&] { show_document(options.output, Split::kValidation, 1); }), "only 1 lines"));
  EXPECT_TRUE(contains(input_error([&] { data_stats(options.output, true); }), "val-ids.jsonl' has changed"));
}

TEST_F(Prepare, LengthsAreCountedAsTheShardsHaveThem) {
  const Manifest manifest = prepare(options).manifest;
  for (Split split : kSplits) {
    std::vector<int64_t> lengths;
    int64_t length = 0;
    for (int64_t token : all_tokens(TokenDataset::open(options.output, split))) {
      ++length;
      if (token != manifest.separator) continue;
      size_t bin = 0;
      while (int64_t{2} << bin <= length) ++bin;
      lengths.resize(std::max(lengths.size(), bin + 1));
      ++lengths[bin];
      length = 0;
    }
    EXPECT_EQ(manifest[split].token_lengths, lengths);
    EXPECT_EQ(read_manifest(options.output)[split].token_lengths, lengths);
  }
  EXPECT_TRUE(contains(to_text(data_stats(options.output, false)), "\n32-63 "));
}

// Exact duplicates go, wherever they are, and what is left is as if they had never been there.
TEST_F(Prepare, DuplicatesAreLeftOutOnRequest) {
  std::vector<std::string> doubled = documents;
  for (size_t i = 0; i < documents.size(); i += 3) doubled.insert(doubled.end() - (i % 100), documents[i]);
  fs::path with = folder.file("in/doubled.txt", joined(doubled));
  options.sample_bytes = 20'000;
  const Manifest once = prepare(options).manifest;
  options.inputs = {with, input};
  options.output = folder / "in/kept";
  const Manifest kept = prepare(options).manifest;
  options.deduplicate = true;
  options.output = folder / "in/dropped";
  const Manifest dropped = prepare(options).manifest;
  int64_t duplicates = 0;
  for (Split split : kSplits) {
    EXPECT_EQ(dropped[split].document_hash, once[split].document_hash);
    EXPECT_EQ(dropped[split].documents, once[split].documents);
    EXPECT_EQ(dropped[split].documents + dropped[split].duplicates, kept[split].documents);
    EXPECT_EQ(kept[split].duplicates, 0);
    duplicates += dropped[split].duplicates;
  }
  EXPECT_EQ(dropped.tokenizer_hash, once.tokenizer_hash);
  EXPECT_EQ(duplicates, 2000);
  EXPECT_TRUE(contains(to_text(data_stats(options.output, true)), "2000 exact duplicates left out"));
  EXPECT_TRUE(prepare(options).already_done);
  options.deduplicate_bytes = 1 << 14;
  options.output = folder / "in/small";
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "--dedup-memory"));
}

TEST_F(Prepare, IdentifiersNeedAColumn) {
  options.documents.id_column = "id";
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "leave out --id-column"));
  options.inputs = {folder.file("in/a.jsonl", "{\"text\": \"a\", \"id\": 1}\n{\"text\": \"b\"}\n")};
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "a.jsonl:2: no key 'id'"));
  options.inputs = {folder.file("in/a.jsonl", "{\"text\": \"a\", \"id\": [1]}\n")};
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "a.jsonl:1: key 'id' holds array"));
}

// Files beyond `bytes` cannot be written while it lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

class PrepareAgain : public Prepare {
 protected:
  std::vector<std::string> many = made_up_documents(30'000, 5);
  fs::path corpus = folder.file("in/many.txt", joined(many)), unfinished = folder / "in/.again.unfinished";
  std::map<std::string, std::string> whole;

  void SetUp() override {
    options.inputs = {corpus};
    options.save_interval = 0;
    prepare(options);
    whole = contents(options.output);
    options.output = folder / "in/again";
  }
  // Stops in the middle of the second pass.
  void interrupt() {
    FileSizeLimit limit(1'500'000);
    EXPECT_THROW(prepare(options), RunError);
    EXPECT_FALSE(fs::exists(options.output));
    EXPECT_GT(read_json(unfinished / "progress.json")["documents_read"], 5000);
  }
  std::string error_of_prepare() {
    try {
      prepare(options);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(PrepareAgain, GoesOnToTheSameBytes) {
  interrupt();
  prepare(options);
  EXPECT_EQ(contents(options.output), whole);
  EXPECT_FALSE(fs::exists(unfinished));
}

TEST_F(PrepareAgain, ButNotWithOtherInputsOrOptions) {
  interrupt();
  write_file(corpus, joined(many) + "One more.\n");
  EXPECT_TRUE(contains(input_error([&] { prepare(options); }), "the input 'many.txt' has changed"));
  write_file(corpus, joined(many));
  PrepareOptions other = options;
  other.vocabulary_size = 400;
  EXPECT_TRUE(contains(input_error([&] { prepare(other); }), "the options are others"));
  other.overwrite = true;
  prepare(other);
  EXPECT_EQ(read_manifest(options.output).vocabulary_size, 400);
}

TEST_F(PrepareAgain, NorFromDamage) {
  for (const char* file : {"train-00000.bin", "tokenizer.model", "progress.json"}) {
    interrupt();
    write_file(unfinished / file, "damaged");
    const std::string message = error_of_prepare();
    EXPECT_TRUE(contains(message, file) && contains(message, "--overwrite")) << message;
    options.overwrite = true;
    prepare(options);
    options.overwrite = false;
    EXPECT_EQ(contents(options.output), whole) << file;
    fs::remove_all(options.output);
  }
}

TEST_F(PrepareAgain, WhenAllButTheFolderIsDone) {
  fs::rename(folder / "out", unfinished);
  prepare(options);
  EXPECT_EQ(contents(options.output), whole);
  EXPECT_FALSE(fs::exists(unfinished));
}

TEST_F(PrepareAgain, AnInputThatChangesMeanwhileIsNamed) {
  std::string message;
  for (int attempt = 0; attempt < 20 && message.empty(); ++attempt) {
    fs::remove_all(options.output);
    write_file(corpus, joined(many));
    std::jthread change([&](const std::stop_token& stop) {
      while (!stop.stop_requested() && !fs::exists(unfinished / "progress.json")) std::this_thread::yield();
      fs::resize_file(corpus, 1000);
    });
    message = error_of_prepare();
  }
  EXPECT_TRUE(contains(message, "many.txt' has changed while it was being read")) << message;
}

TEST_F(Prepare, ABadManifestIsOneClearError) {
  prepare(options);
  const fs::path path = options.output / "manifest.json";
  const Json good = read_json(path);
  auto broken = [&](const std::string& pointer, const Json& value) {
    Json changed = good;
    changed[Json::json_pointer(pointer)] = value;
    write_json(path, changed);
    std::string error = input_error([&] { read_manifest(options.output); });
    EXPECT_TRUE(contains(error, path.string())) << error;
  };
  for (const char* key : {"/format", "/version", "/tokenizer", "/tokenizer/vocabulary_size", "/split",
                          "/split/seed", "/split/fractions/val", "/splits", "/splits/test", "/splits/train/tokens",
                          "/splits/train/shards", "/inputs"}) {
    broken(key, "wrong");
  }
  broken("/splits/train/shards/0/file", "../val-00000.bin");
  broken("/tokenizer/file", "/etc/passwd");
  broken("/splits/train/shards/0/tokens", -1);
  broken("/splits/train/tokens", 12);
  broken("/version", 2);
  write_file(path, "{\"format\": ");
  EXPECT_TRUE(contains(input_error([&] { TokenDataset::open(options.output, Split::kTrain); }), path.string()));
}

}  // namespace
}  // namespace depthroute
