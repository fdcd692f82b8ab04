#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "io/test_folder.h"
#include "study/calibration.h"
#include "study/checkpoint_comparison.h"
#include "study/diagnostics.h"
#include "study/plan.h"
#include "study/report.h"
#include "study/study_config.h"
#include "study/study_runner.h"
#include "train/test_data.h"

namespace depthroute {
namespace {

std::string study_text(const std::filesystem::path& data) {
  return format_text(R"(
name = "test"
variants = ["block_attnres", "rd_attnres"]
seeds = [1, 2]
[[comparisons]]
variant = "rd_attnres"
baseline = "block_attnres"
[model]
preset = "tiny"
layers = 2
vocabulary = 300
[data]
folder = "{}"
[train]
tokens = 512
batch_windows = 4
learning_rate = 1e-2
milestones = [256, 512]
threads = 1
)",
                     data.string());
}

StudyConfig read(const std::filesystem::path& data, const std::vector<std::string>& overrides = {}) {
  Config config = Config::parse(study_text(data), "study.toml", overrides);
  return read_study_config(config);
}

TEST(StudyConfig, PairsSeedsBySeedAndFreezes) {
  StudyConfig study = read("data");
  std::vector<std::string> names;
  for (const StudyRun& run : study.runs) names.push_back(run.name());
  EXPECT_EQ(names, (std::vector<std::string>{"block_attnres-seed1", "rd_attnres-seed1", "block_attnres-seed2",
                                             "rd_attnres-seed2"}));
  EXPECT_EQ(study.hash, read("elsewhere", {"train.log_interval=3"}).hash);
  for (const char* change :
       {"train.learning_rate=0.02", "seeds=[1, 3]", "decision.level=0.01", "model.layers=3", "residual.blocks=1"}) {
    EXPECT_NE(study.hash, read("data", {change}).hash) << change;
  }
}

TEST(StudyConfig, RefusesWhatIsNoStudy) {
  for (const auto& [change, expected] : std::vector<std::pair<std::string, std::string>>{
           {"variants=[]", "at least one"},
           {"variants=[\"standard\", \"standard\"]", "named twice"},
           {"seeds=[1, 1]", "different"},
           {"seeds=[-1]", "negative"},
           {"variants=[\"standard\"]", "not one of the study's variants"},
           {"decision.milestone=300", "not one of train.milestones"},
           {"decision.test=z", "unknown test"},
           {"tokens=5", "unknown key"},
       }) {
    std::string message = message_of<InputError>([&, text = change] { read("data", {text}); });
    EXPECT_NE(message.find(expected), std::string::npos) << change << ": " << message;
  }
}

TEST(Study, RunsInPairsOnceAndRefusesAChange) {
  TestFolder folder;
  make_test_data(folder / "data");
  StudyConfig study = read(folder / "data");
  EXPECT_EQ(run_study(study, folder / "a", {}).trained, 4);
  EXPECT_EQ(run_study(study, folder / "a", {}).trained, 0);
  for (int64_t run = 0; run < 4; ++run) EXPECT_EQ(run_study(study, folder / "b", {.only = run}).trained, 1);
  for (const StudyRun& run : study.runs) {
    auto losses = [&](const char* out) {
      std::vector<double> values;
      for (const Json& event : read_json_lines(folder / out / "runs" / run.name() / "metrics.jsonl")) {
        if (event["event"] == "validation") values.push_back(event["loss"].get<double>());
      }
      return values;
    };
    EXPECT_EQ(losses("a"), losses("b")) << run.name();
    EXPECT_EQ(losses("a").size(), 2u);
  }
  std::string message = message_of<InputError>(
      [&] { run_study(read(folder / "data", {"train.learning_rate=0.5"}), folder / "a", {}); });
  EXPECT_NE(message.find("train.learning_rate"), std::string::npos) << message;
  EXPECT_NE(message_of<InputError>([&] { run_study(study, folder / "a", {.only = 4}); }), "");

  evaluate_test_split(folder / "a");
  Json test = read_json(folder / "a" / "runs" / "rd_attnres-seed1" / "test.json");
  EXPECT_GT(test["loss"].get<double>(), 0);
}

TEST(Study, GoesOnToALongerHorizon) {
  TestFolder folder;
  make_test_data(folder / "data");
  const std::vector<std::string> branches = {"train.schedule=wsd", "train.decay=milestones"};
  std::vector<std::string> longer = branches;
  longer.insert(longer.end(), {"train.tokens=1024", "train.milestones=[256, 512, 1024]"});
  StudyConfig first = read(folder / "data", branches), second = read(folder / "data", longer);
  EXPECT_NE(first.hash, second.hash);
  run_study(first, folder / "first", {});
  run_study(second, folder / "at once", {});
  EXPECT_EQ(run_study(second, folder / "extended", {.extend = folder / "first"}).failed, 0);
  EXPECT_THROW(run_study(second, folder / "first", {}), InputError) << "a frozen protocol";

  const StudyResults at_once = read_study(folder / "at once"), extended = read_study(folder / "extended");
  for (const RunResult& run : extended.runs) {
    const RunResult* other = at_once.find(run.variant, run.seed);
    ASSERT_EQ(run.state, RunState::kFinished) << run.message;
    ASSERT_EQ(run.validation.size(), 3u);  // those of the branches, none of the run itself
    ASSERT_EQ(run.diagnostics.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(run.validation[i].loss, other->validation[i].loss);
      EXPECT_EQ(run.validation[i].tokens, second.runs[0].config.train.milestones[i]);
      EXPECT_NE(milestone_point(run, second.runs[0].config.train.milestones[i]), nullptr);
    }
    const RunResult shorter = *read_study(folder / "first").find(run.variant, run.seed);
    EXPECT_EQ(shorter.state, RunState::kFinished);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(run.validation[i].loss, shorter.validation[i].loss);
  }
  // Taken over and not continued yet is not finished.
  adopt_runs(second, folder / "first", folder / "waiting");
  write_json(folder / "waiting" / "study.json", read_json(folder / "extended" / "study.json"));
  const StudyResults waiting = read_study(folder / "waiting");
  for (const RunResult& run : waiting.runs) {
    EXPECT_EQ(run.state, RunState::kStopped);
    EXPECT_EQ(run.message, "finished 512 of 1024 tokens");
  }
  evaluate_test_split(folder / "waiting");
  EXPECT_FALSE(std::filesystem::exists(folder / "waiting" / "runs" / "rd_attnres-seed1" / "test.json"));

  std::vector<std::string> other = longer;
  other.emplace_back("train.learning_rate=2e-2");
  EXPECT_THROW(run_study(read(folder / "data", other), folder / "other", {.extend = folder / "first"}), InputError);
  EXPECT_THROW(run_study(read(folder / "data"), folder / "cosine", {.extend = folder / "first"}), InputError);
  EXPECT_THROW(run_study(second, folder / "none", {.extend = folder / "absent"}), InputError);
}

TEST(CalibrationStudy, TrainsOneVariantTwiceFromTheSameTensors) {
  TestFolder folder;
  make_test_data(folder / "data");
  const StudyConfig study = read(folder / "data");
  const StudyConfig twice = calibration_study(study);
  std::vector<std::string> names;
  for (const StudyRun& run : twice.runs) {
    names.push_back(run.name());
    EXPECT_EQ(run.index, std::ssize(names) - 1);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"block_attnres-seed1", "block_attnres-again-seed1",
                                             "block_attnres-seed2", "block_attnres-again-seed2"}));
  EXPECT_NE(twice.hash, study.hash);
  EXPECT_EQ(twice.hash, calibration_study(study, "block_attnres").hash);
  EXPECT_NE(twice.hash, calibration_study(study, "rd_attnres").hash);
  EXPECT_NE(message_of<InputError>([&] { calibration_study(study, "standard"); }).find("'standard'"),
            std::string::npos);

  // One of the two runs of a seed is the study's own, bit for bit; the other begins alike and sees other batches.
  run_study(study, folder / "study", {});
  EXPECT_EQ(run_study(twice, folder / "aa", {}).trained, 4);
  const auto validations = [&](const std::string& run) {
    std::vector<double> losses;
    for (const Json& event : read_json_lines(folder / run / "metrics.jsonl")) {
      if (event["event"] == "validation") losses.push_back(event["loss"].get<double>());
    }
    return losses;
  };
  for (const std::string seed : {"1", "2"}) {
    const std::vector<double> first = validations("aa/runs/block_attnres-seed" + seed),
                              second = validations("aa/runs/block_attnres-again-seed" + seed);
    EXPECT_EQ(first, validations("study/runs/block_attnres-seed" + seed));
    EXPECT_NE(first, second);
    EXPECT_EQ(first.size(), second.size());
  }
  for (const StudyRun& run : twice.runs) {
    EXPECT_EQ(run.config.seed, run.index < 2 ? 1u : 2u);
    EXPECT_EQ(run.config.order_seed(), run.index % 2 == 0 ? run.config.seed : run.config.seed + 2);
  }
  EXPECT_THROW(run_study(twice, folder / "study", {}), InputError) << "another study's folder";

  StudyResults results = read_study(folder / "study");
  results.calibration = read_calibration(folder / "aa", results);
  EXPECT_EQ(results.calibration->differences.size(), 2u);
  EXPECT_NE(verdict_text(results).find("differ only in the order of the data"), std::string::npos);
  EXPECT_NE(verdict_text(read_study(folder / "aa")).find("these differences mean nothing"), std::string::npos);
}

TEST(Diagnostics, OfUniformAndOfSeparateRoutes) {
  TestFolder folder;
  make_test_data(folder / "data");
  TokenDataset data = TokenDataset::open(folder / "data", Split::kValidation);
  Transformer model(test_model(data.vocabulary_size()), 1);
  // Queries start at zero: uniform weights, no divergence.
  for (const DepthReadSummary& read : diagnose(model, data, 2, 1).reads) {
    double uniform = 1 / static_cast<double>(read.sources.size());
    ASSERT_EQ(read.mean.size(), read.sources.size());
    for (double weight : read.mean) EXPECT_NEAR(weight, uniform, 1e-6);
    EXPECT_NEAR(read.entropy, std::log(static_cast<double>(read.sources.size())), 1e-6);
    EXPECT_NEAR(read.largest, uniform, 1e-6);
  }
  EXPECT_NEAR(diagnose(model, data, 2, 1).mean_per_token(), 0, 1e-6);

  // Queries far apart make one route choose one source and the other another: the divergence nears ln 2.
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  at::Tensor direction = at::randn({model.config().width}) * 100;
  std::string site = "model.layers.1.self_attn.depth_read.query.";
  model.parameters().get(site + "qk").copy_(direction);
  model.parameters().get(site + "v").copy_(-direction);
  DepthDiagnostics result = diagnose(model, data, 2, 2);
  ASSERT_EQ(result.divergence.size(), 2u);
  EXPECT_NEAR(result.divergence[0].per_token, 0, 1e-6);  // one source only
  EXPECT_GT(result.divergence[1].per_token, 0.6);
  EXPECT_LE(result.divergence[1].per_token, std::log(2.0) + 1e-9);
  EXPECT_LE(result.divergence[1].of_means, result.divergence[1].per_token + 1e-9);  // JS is convex
}

TEST(CompareCheckpoints, FindsWhatDiffersAndNothingElse) {
  TestFolder folder;
  make_test_data(folder / "data");
  TokenDataset data = TokenDataset::open(folder / "data", Split::kValidation);
  const ModelConfig config = test_model(data.vocabulary_size());
  Transformer model(config, 1), same(config, 1), other(config, 1);
  CheckpointComparison equal = compare_checkpoints(model, same, data, 3, 2);
  EXPECT_EQ(equal.tokens, 3 * config.context);
  EXPECT_EQ(equal.difference(), 0);
  EXPECT_EQ(equal.reads.size(), diagnose(model, data, 1, 1).reads.size());
  EXPECT_TRUE(equal.unmatched.empty());
  for (const ReadChange& read : equal.reads) EXPECT_NEAR(read.per_token, 0, 1e-12) << read.site << " " << read.role;

  // One query turned far one way and the other: that read's two distributions have next to nothing in common, the
  // reads before it stay as they were.
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  at::Tensor direction = at::randn({config.width}) * 100;
  std::string query = "model.layers.1.self_attn.depth_read.query.v";
  model.parameters().get(query).copy_(direction);
  other.parameters().get(query).copy_(-direction);
  CheckpointComparison turned = compare_checkpoints(model, other, data, 3, 2);
  EXPECT_NE(turned.difference(), 0);
  EXPECT_NEAR(turned.loss - turned.other_loss, turned.difference(), 1e-12);
  for (const ReadChange& read : turned.reads) {
    if (read.site == "model.layers.1.self_attn" && read.role == "v") {
      EXPECT_GT(read.per_token, 0.6);
      EXPECT_LE(read.of_means, read.per_token + 1e-9);
    } else if (read.site.starts_with("model.layers.0.") || read.role == "qk") {
      EXPECT_NEAR(read.per_token, 0, 1e-12) << read.site << " " << read.role;
    }
  }
  CheckpointComparison reversed = compare_checkpoints(other, model, data, 3, 1);
  EXPECT_NEAR(reversed.difference(), -turned.difference(), 1e-6);
}

TEST(CompareCheckpoints, ReadsOfOneModelOnlyAreNamed) {
  TestFolder folder;
  make_test_data(folder / "data");
  TokenDataset data = TokenDataset::open(folder / "data", Split::kValidation);
  const ModelConfig config = test_model(data.vocabulary_size());
  Transformer model(config, 1), block(test_model(data.vocabulary_size(), "block_attnres"), 1);
  CheckpointComparison comparison = compare_checkpoints(model, block, data, 1, 1);
  const auto unmatched = [&](const std::string& name) {
    return std::ranges::count(comparison.unmatched, "model.layers.0.self_attn " + name);
  };
  EXPECT_EQ(unmatched("qk"), 1);
  EXPECT_EQ(unmatched("v"), 1);
  EXPECT_EQ(unmatched("qkv"), 1);
  for (const ReadChange& read : comparison.reads) EXPECT_FALSE(read.site.ends_with("self_attn")) << read.site;
  EXPECT_FALSE(comparison.reads.empty());

  ModelConfig longer = config;
  longer.context *= 2;
  Transformer other(longer, 1);
  EXPECT_THROW(compare_checkpoints(model, other, data, 1, 1), InputError);
}

TEST(Plan, CountsWhatTheModelHas) {
  std::vector<ModelConfig> models;
  for (const std::string& variant : variant_names()) {
    ModelConfig model = preset("tiny");
    model.residual = named_residual_config(variant, model.layers);
    models.push_back(model);
  }
  std::vector<VariantPlan> plans = plan_variants(models, 4);
  for (size_t i = 0; i < plans.size(); ++i) {
    EXPECT_EQ(plans[i].parameters, Transformer(models[i], 1).parameters().element_count()) << plans[i].variant;
  }
  EXPECT_EQ(plans[0].residual_parameters, 0);
}

}  // namespace
}  // namespace depthroute
