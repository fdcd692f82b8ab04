#include "train/trainer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cctype>

#include "io/file.h"
#include "io/test_folder.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/test_data.h"

namespace depthroute {
namespace {

namespace fs = std::filesystem;

class TrainerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestFolder;
    make_test_data(*folder_ / "data");
  }
  static void TearDownTestSuite() { delete folder_; }

  RunConfig config(const std::string& variant = "rd_attnres") const {
    RunConfig run;
    run.data_folder = *folder_ / "data";
    run.model = test_model(TokenDataset::open(run.data_folder, Split::kTrain).vocabulary_size(), variant);
    run.train.batch_windows = 4;
    run.train.micro_batch_windows = 4;
    run.train.tokens = 10 * 4 * run.model.context;
    run.train.learning_rate = 1e-2;
    run.train.warmup_steps = 2;
    run.train.milestones = {run.train.tokens / 2, run.train.tokens};
    run.train.checkpoint_interval = 2;
    run.train.log_interval = 1;
    run.train.threads = 1;
    return run;
  }

  // Weights and optimizer of the last checkpoint, as bytes.
  static std::string final_bytes(const fs::path& run) {
    fs::path checkpoint = find_checkpoint(run);
    return read_file(checkpoint / "model.safetensors") + read_file(checkpoint / "optimizer.safetensors");
  }

  static std::vector<double> losses(const fs::path& run, const std::string& event) {
    std::vector<double> values;
    for (const Json& line : read_json_lines(run / "metrics.jsonl")) {
      if (line["event"] == event) values.push_back(line["loss"].get<double>());
    }
    return values;
  }

  // As if the process had been killed after `step`: later checkpoints are gone, the metrics have run ahead.
  static void forget_after(const fs::path& run, int64_t step) {
    for (const fs::path& checkpoint : list_checkpoints(run)) {
      if (load_training_state(checkpoint).step > step) fs::remove_all(checkpoint);
    }
    run_ahead(run);
  }
  static void run_ahead(const fs::path& run) {
    append_line(run / "metrics.jsonl", R"({"event":"train","step":99,"tokens":0,"loss":0})");
  }

  static TestFolder* folder_;
};
TestFolder* TrainerTest::folder_ = nullptr;

TEST_F(TrainerTest, ResumesToTheSameBits) {
  TestFolder out;
  EXPECT_EQ(run_training(config(), out / "a", {}), TrainingOutcome::kFinished);
  EXPECT_EQ(run_training(config(), out / "a", {}), TrainingOutcome::kWasFinished);
  EXPECT_EQ(run_training(config(), out / "b", {}), TrainingOutcome::kFinished);
  std::string expected = final_bytes(out / "a");
  EXPECT_EQ(final_bytes(out / "b"), expected);
  forget_after(out / "b", 8);
  EXPECT_EQ(run_training(config(), out / "b", {}), TrainingOutcome::kFinished);
  EXPECT_EQ(final_bytes(out / "b"), expected);
  EXPECT_EQ(losses(out / "b", "train"), losses(out / "a", "train"));
  EXPECT_EQ(losses(out / "b", "validation"), losses(out / "a", "validation"));
  EXPECT_EQ(losses(out / "a", "train").size(), 10u);
  EXPECT_EQ(losses(out / "a", "validation").size(), 2u);
}

TEST_F(TrainerTest, ADamagedCheckpointFallsBackToTheOneBefore) {
  TestFolder out;
  run_training(config(), out / "a", {});
  std::string expected = final_bytes(out / "a");
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "config.json", "state.json", "checksums.json"}) {
    fs::path damaged = find_checkpoint(out / "a") / file;
    std::string bytes = read_file(damaged);
    bytes[bytes.size() / 2] ^= 1;
    write_file(damaged, bytes);
    EXPECT_NE(message_of<InputError>([&] { verify_checkpoint(damaged.parent_path()); }), "") << file;
    run_ahead(out / "a");  // the end event is no longer the last: the run goes on
    EXPECT_EQ(run_training(config(), out / "a", {}), TrainingOutcome::kFinished) << file;
    EXPECT_EQ(final_bytes(out / "a"), expected) << file;
  }
}

// Every file of a checkpoint: missing, cut anywhere, longer, a flipped bit anywhere (every byte of the small ones).
TEST_F(TrainerTest, EveryDamageOfACheckpointIsFound) {
  TestFolder out;
  run_training(config(), out / "a", {});
  const fs::path checkpoint = find_checkpoint(out / "a");
  int64_t damages = 0;
  const auto expect_found = [&](const fs::path& file, const std::string& bytes, const std::string& what) {
    write_file(file, bytes);
    ++damages;
    EXPECT_NE(message_of<InputError>([&] { verify_checkpoint(checkpoint); }), "") << file << ": " << what;
  };
  for (const fs::directory_entry& item : fs::directory_iterator(checkpoint)) {
    const fs::path& file = item.path();
    const std::string whole = read_file(file);
    const size_t stride = std::max<size_t>(1, whole.size() / 300);
    for (size_t at = 0; at < whole.size(); at += stride) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at / stride % 8)));
      // White space of JSON may change without a change of meaning, in the one file that has no checksum.
      const bool blank = file.filename() == "checksums.json" && std::isspace(static_cast<unsigned char>(whole[at]));
      if (!blank) expect_found(file, flipped, format_text("bit of byte {} flipped", at));
    }
    for (size_t size = 0; size < whole.size(); size += std::max<size_t>(1, whole.size() / 20)) {
      const bool only_newline = whole.find_first_not_of(" \n", size) == std::string::npos;
      if (!only_newline) expect_found(file, whole.substr(0, size), format_text("cut to {} bytes", size));
    }
    expect_found(file, whole + "x", "a byte more");
    fs::remove(file);
    EXPECT_NE(message_of<InputError>([&] { verify_checkpoint(checkpoint); }), "") << file << " missing";
    write_file(file, whole);
    EXPECT_NO_THROW(verify_checkpoint(checkpoint));
  }
  EXPECT_GT(damages, 1000);
}

TEST_F(TrainerTest, KeepsTheNewestTwoAndTheMilestones) {
  TestFolder out;
  run_training(config(), out / "a", {});
  std::vector<int64_t> steps;
  for (const fs::path& checkpoint : list_checkpoints(out / "a"))
    steps.push_back(load_training_state(checkpoint).step);
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 8, 10}));
}

TEST_F(TrainerTest, MicroBatchesChangeRoundingOnly) {
  TestFolder out;
  RunConfig split = config();
  split.train.micro_batch_windows = 1;
  run_training(config(), out / "a", {});
  run_training(split, out / "b", {});
  std::vector<double> a = losses(out / "a", "train"), b = losses(out / "b", "train");
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
}

TEST_F(TrainerTest, EveryVariantLearns) {
  for (const std::string& variant : variant_names()) {
    TestFolder out;
    RunConfig run = config(variant);
    run.train.tokens *= 3;
    run.train.milestones = {run.train.tokens};
    run_training(run, out / "a", {});
    std::vector<double> values = losses(out / "a", "train");
    EXPECT_LT(values.back(), values.front() - 0.3) << variant;
  }
}

// The same run in mixed precision: close to float32 at each step, weights and optimizer in float32, the same bits after a
// resume.
TEST_F(TrainerTest, MixedPrecisionLearnsAsFloatDoes) {
  TestFolder out;
  RunConfig run = config();
  run.train.tokens *= 5;
  run.train.milestones = {run.train.tokens};
  run_training(run, out / "fp32", {});
  run.train.bfloat16 = true;
  run_training(run, out / "bf16", {});
  const std::vector<double> exact = losses(out / "fp32", "train"), rounded = losses(out / "bf16", "train");
  ASSERT_EQ(exact.size(), 50u);
  ASSERT_EQ(rounded.size(), 50u);
  // The paths part at this high a rate; what they learn must not.
  double mean = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(exact[i], rounded[i], 0.1) << i;
    mean += (rounded[i] - exact[i]) / static_cast<double>(exact.size());
  }
  EXPECT_NEAR(mean, 0, 0.01);
  EXPECT_NE(exact, rounded);
  EXPECT_LT(rounded.back(), rounded.front() - 0.5);
  EXPECT_NEAR(losses(out / "fp32", "validation").back(), losses(out / "bf16", "validation").back(), 0.02);
  const std::string expected = final_bytes(out / "bf16");
  EXPECT_EQ(expected.find("BF16"), std::string::npos);
  forget_after(out / "bf16", 46);
  run_training(run, out / "bf16", {});
  EXPECT_EQ(final_bytes(out / "bf16"), expected);
}

// What a step takes it gives back: 200 steps later the program holds as many bytes.
TEST(TrainingStep, MemoryDoesNotGrow) {
  for (const char* variant : {"rd_attnres", "delta_block", "muddformer"}) {
    Transformer model(test_model(64, variant), 1);
    AdamW optimizer(model.parameters(), {});
    at::Tensor ids = at::randint(0, 64, {2, model.config().context}, at::kLong);
    auto bytes_after = [&](int64_t steps) {
      for (int64_t step = 0; step < steps; ++step) {
        for (const auto& [name, parameter] : model.parameters().items()) parameter.mutable_grad() = at::Tensor();
        model.loss_sum(ids, ids).backward();
        optimizer.step(1e-4, clip_divisor(std::sqrt(gradient_square_sum(model.parameters())), 1.0));
      }
      struct mallinfo2 info = mallinfo2();
      return static_cast<int64_t>(info.uordblks + info.hblkhd);
    };
    // The allocator's own lists settle within the first few hundred steps; a lost tensor takes hundreds of bytes a step.
    int64_t before = bytes_after(300), after = bytes_after(200);
    EXPECT_LT(after, before + 200 * 32) << variant;
  }
}

TEST_F(TrainerTest, AnotherConfigIsRefusedWithItsKeys) {
  TestFolder out;
  run_training(config(), out / "a", {});
  RunConfig other = config();
  other.train.learning_rate = 0.5;
  other.seed = 2;
  std::string message = message_of<InputError>([&] { run_training(other, out / "a", {}); });
  EXPECT_NE(message.find("seed, train.learning_rate"), std::string::npos) << message;
}

// Warm-up, stable, decay over `steps`, which are the milestones: 8 of 10 steps before the decay, 16 of 20.
class HorizonTest : public TrainerTest {
 protected:
  RunConfig horizon(Decay decay, const std::vector<int64_t>& steps) const {
    RunConfig run = config();
    run.train.schedule = Schedule::kWarmupStableDecay;
    run.train.decay = decay;
    run.train.milestones.clear();
    for (int64_t step : steps) run.train.milestones.push_back(step * 4 * run.model.context);
    run.train.tokens = run.train.milestones.back();
    return run;
  }
  static std::string branch_bytes(const fs::path& run, int64_t step) {
    return final_bytes(branch_folder(run, step));
  }
};

TEST_F(HorizonTest, ABranchIsTheRunThatEndsThere) {
  TestFolder out;
  EXPECT_EQ(run_training(horizon(Decay::kMilestones, {10, 20}), out / "both", {}), TrainingOutcome::kFinished);
  EXPECT_EQ(run_training(horizon(Decay::kMilestones, {10, 20}), out / "both", {}), TrainingOutcome::kWasFinished);
  for (int64_t step : {10, 20}) {
    const fs::path alone = out / std::to_string(step);
    run_training(horizon(Decay::kEnd, {step}), alone, {});
    EXPECT_EQ(branch_bytes(out / "both", step), final_bytes(alone)) << step;
    EXPECT_EQ(losses(branch_folder(out / "both", step), "validation"), losses(alone, "validation")) << step;
  }
  EXPECT_TRUE(losses(out / "both", "validation").empty());
  EXPECT_EQ(losses(out / "both", "train").size(), 16u);
  EXPECT_EQ(load_training_state(find_checkpoint(out / "both")).step, 20);
}

TEST_F(HorizonTest, AFinishedRunGoesOnToALongerHorizon) {
  TestFolder out;
  for (Decay decay : {Decay::kMilestones, Decay::kNone}) {
    const std::string name = decay == Decay::kNone ? "none" : "milestones";
    run_training(horizon(decay, {10}), out / name, {});
    const std::string first = final_bytes(out / name);
    EXPECT_EQ(run_training(horizon(decay, {10, 20}), out / name, {}), TrainingOutcome::kFinished);
    run_training(horizon(decay, {10, 20}), out / (name + "-at-once"), {});
    EXPECT_EQ(final_bytes(out / name), final_bytes(out / (name + "-at-once"))) << name;
    EXPECT_NE(final_bytes(out / name), first) << name;
    EXPECT_EQ(losses(out / name, "train"), losses(out / (name + "-at-once"), "train")) << name;
    const Json description = read_json(out / name / "run.json");
    EXPECT_EQ(description["config"], read_json(out / (name + "-at-once") / "run.json")["config"]) << name;
  }
  EXPECT_EQ(losses(out / "none", "validation").size(), 2u);
}

TEST_F(HorizonTest, ResumesInABranchAndBehindIt) {
  TestFolder out;
  const RunConfig run = horizon(Decay::kMilestones, {10, 20});
  run_training(run, out / "whole", {});
  const auto expect_same = [&](const std::string& name) {
    EXPECT_EQ(run_training(run, out / name, {}), TrainingOutcome::kFinished) << name;
    for (int64_t step : {10, 20})
      EXPECT_EQ(branch_bytes(out / name, step), branch_bytes(out / "whole", step)) << name;
    EXPECT_EQ(losses(out / name, "train"), losses(out / "whole", "train")) << name;
    EXPECT_EQ(losses(branch_folder(out / name, 20), "train"), losses(branch_folder(out / "whole", 20), "train"));
  };
  // As if killed in the last branch, before its first checkpoint, and in the first branch.
  fs::copy(out / "whole", out / "late", fs::copy_options::recursive);
  run_ahead(out / "late");
  forget_after(branch_folder(out / "late", 20), 18);
  expect_same("late");
  run_ahead(out / "late");
  fs::remove_all(branch_folder(out / "late", 20));
  expect_same("late");
  fs::copy(out / "whole", out / "early", fs::copy_options::recursive);
  forget_after(out / "early", 8);
  fs::remove_all(branch_folder(out / "early", 20));
  forget_after(branch_folder(out / "early", 10), 9);
  expect_same("early");
  // What it branches off from has gone: made again from the checkpoint before.
  run_ahead(out / "early");
  fs::remove_all(branch_folder(out / "early", 20));
  write_file(checkpoint_folder(out / "early", 16) / "state.json", "{}");
  expect_same("early");
}

TEST_F(HorizonTest, WhatCannotBeExtendedIsRefused) {
  TestFolder out;
  run_training(config(), out / "cosine", {});
  RunConfig longer = config();
  longer.train.milestones.push_back(longer.train.tokens *= 2);
  EXPECT_NE(message_of<InputError>([&] { run_training(longer, out / "cosine", {}); }).find("cannot be extended"),
            std::string::npos);
  // The run has passed step 4, where the decay to 5 would have begun.
  run_training(horizon(Decay::kMilestones, {10}), out / "run", {});
  EXPECT_NE(message_of<InputError>([&] {
              run_training(horizon(Decay::kMilestones, {5, 20}), out / "run", {});
            }).find("after step 4"),
            std::string::npos);
  EXPECT_EQ(run_training(horizon(Decay::kMilestones, {10}), out / "run", {}), TrainingOutcome::kWasFinished);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteStopsTheRun) {
  TestFolder out;
  RunConfig run = config("standard");
  run.train.learning_rate = 1e20;
  run.train.gradient_clip = 0;
  std::string message = message_of<RunError>([&] { run_training(run, out / "a", {}); });
  EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
  EXPECT_NE(message.find("windows "), std::string::npos) << message;
  EXPECT_EQ(read_json_lines(out / "a" / "metrics.jsonl").back()["reason"], "non_finite");
}

// A rate far too high makes the loss jump.
TEST_F(TrainerTest, SpikesAreRecordedWithTheirBatchAndSkippedOnRequest) {
  TestFolder out;
  RunConfig plain = config("standard");
  plain.train.learning_rate = 0.5;
  RunConfig recorded = plain, skipped = plain;
  recorded.train.spike_threshold = skipped.train.spike_threshold = 0.02;
  skipped.train.skip_spikes = true;
  for (const auto& [name, run] : {std::pair{"plain", plain}, {"recorded", recorded}, {"skipped", skipped}})
    run_training(run, out / name, {});
  EXPECT_EQ(final_bytes(out / "recorded"), final_bytes(out / "plain")) << "to look out changes nothing";
  EXPECT_NE(final_bytes(out / "skipped"), final_bytes(out / "plain"));

  auto spikes = [](const fs::path& run) {
    std::vector<Json> events;
    for (const Json& event : read_json_lines(run / "metrics.jsonl"))
      if (event["event"] == "spike") events.push_back(event);
    return events;
  };
  ASSERT_FALSE(spikes(out / "recorded").empty());
  ASSERT_FALSE(spikes(out / "skipped").empty());
  for (const Json& spike : spikes(out / "recorded")) {
    EXPECT_GT(spike["loss"].get<double>(), spike["average_loss"].get<double>() + 0.02);
    EXPECT_FALSE(spike["skipped"]);
    ASSERT_EQ(spike["batch"].size(), 4u);
    for (const Json& place : spike["batch"]) {
      // What lies there is the window.
      const auto context = static_cast<size_t>(plain.model.context);
      std::string bytes = read_file(place["file"].get<std::string>());
      TokenDataset data = TokenDataset::open(plain.data_folder, Split::kTrain);
      std::vector<int64_t> window(context);
      data.copy(place["window"].get<int64_t>() * plain.model.context, plain.model.context, window.data());
      for (size_t i = 0; i < context; ++i) {
        size_t at = place["byte_offset"].get<size_t>() + 2 * i;
        int64_t token =
            static_cast<unsigned char>(bytes.at(at)) + 256 * static_cast<unsigned char>(bytes.at(at + 1));
        ASSERT_EQ(token, window[i]);
      }
    }
  }
  // The average is part of the state: a resumed run sees the same spikes.
  const std::vector<Json> expected = spikes(out / "skipped");
  const std::string bytes = final_bytes(out / "skipped");
  forget_after(out / "skipped", 5);
  run_training(skipped, out / "skipped", {});
  EXPECT_EQ(final_bytes(out / "skipped"), bytes);
  EXPECT_EQ(spikes(out / "skipped"), expected);
}

TEST_F(TrainerTest, ALossThatIsNotFiniteCanBeSkippedButNotForEver) {
  TestFolder out;
  RunConfig run = config("standard");
  run.train.learning_rate = 1e20;
  run.train.gradient_clip = 0;
  run.train.tokens *= 3;
  run.train.milestones = {run.train.tokens};
  run.train.spike_threshold = 1e6;
  run.train.skip_spikes = true;
  std::string message = message_of<RunError>([&] { run_training(run, out / "a", {}); });
  EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
  int64_t skipped = 0;
  for (const Json& event : read_json_lines(out / "a" / "metrics.jsonl"))
    if (event["event"] == "spike" && event["skipped"]) ++skipped;
  EXPECT_EQ(skipped, 10);
}

TEST_F(TrainerTest, AnotherVocabularyIsRefused) {
  TestFolder out;
  RunConfig run = config();
  run.model.vocabulary += 1;
  EXPECT_NE(message_of<InputError>([&] { run_training(run, out / "a", {}); }).find("vocabulary"),
            std::string::npos);
}

}  // namespace
}  // namespace depthroute
