#include "data/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

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
