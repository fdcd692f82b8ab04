#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numbers>
#include <set>

#include "io/test_folder.h"
#include "train/batches.h"
#include "train/evaluate.h"
#include "train/optimizer.h"
#include "train/run_config.h"
#include "train/schedule.h"
#include "train/test_data.h"

namespace depthroute {
namespace {

TrainConfig train_config() {
  TrainConfig config;
  config.tokens = 1000;
  config.batch_windows = 1;
  config.learning_rate = 0.5;
  config.warmup_steps = 10;
  return config;
}

TEST(Schedule, CosineRisesAndFallsToItsFraction) {
  TrainConfig config = train_config();
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 0, 100), 0.05);
  EXPECT_DOUBLE_EQ(learning_rate_at(config, 9, 100), 0.5);
  EXPECT_NEAR(learning_rate_at(config, 54, 100), 0.5 * 0.55, 1e-12);  // half-way between 10 and 100
  EXPECT_NEAR(learning_rate_at(config, 99, 100), 0.05, 1e-12);
}

TEST(Schedule, WarmupStableDecayStaysUntilTheDecay) {
  TrainConfig config = train_config();
  config.schedule = Schedule::kWarmupStableDecay;
  for (int64_t step : {9, 40, 79}) EXPECT_DOUBLE_EQ(learning_rate_at(config, step, 100), 0.5) << step;
  EXPECT_NEAR(learning_rate_at(config, 89, 100), 0.5 * 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(config, 99, 100), 0.05, 1e-12);
}

// AdamW written out in float64.
TEST(Schedule, DecayOnBranchesLeavesTheRunAtTheFullRate) {
  TrainConfig config;
  config.learning_rate = 1;
  config.schedule = Schedule::kWarmupStableDecay;
  config.warmup_steps = 2;
  config.batch_windows = 1;
  config.milestones = {50, 100};
  config.tokens = 100;
  for (Decay decay : {Decay::kMilestones, Decay::kNone}) {
    config.decay = decay;
    for (int64_t step = 2; step < 100; ++step) EXPECT_EQ(learning_rate_at(config, step, 100), 1);
  }
  // A step is one token here. The decay takes a fifth: from 40 to 50 and from 80 to 100.
  config.decay = Decay::kMilestones;
  EXPECT_EQ(decay_begin(config, 50), 40);
  EXPECT_EQ(trunk_steps(config, 1), 80);
  EXPECT_EQ(trained_steps(config, 1), 80 + 10 + 20);
  config.decay = Decay::kNone;
  EXPECT_EQ(trained_steps(config, 1), 100);
  config.decay = Decay::kEnd;
  EXPECT_EQ(trained_steps(config, 1), 100);
  EXPECT_EQ(learning_rate_at(config, 79, 100), 1);
  EXPECT_LT(learning_rate_at(config, 80, 100), 1) << "the first step behind decay_begin";
}

TEST(AdamW, AgreesWithTheFormulaAndDecaysMatricesOnly) {
  TrainConfig config = train_config();
  config.weight_decay = 0.1;
  at::manual_seed(1);
  ParameterStore store;
  store.add("matrix", at::randn({3, 4}).requires_grad_());
  store.add("vector", at::randn({5}).requires_grad_());
  store.add("unused", at::randn({2, 2}).requires_grad_());
  AdamW optimizer(store, config);
  std::map<std::string, at::Tensor> x, m, v;
  for (const auto& [name, parameter] : store.items()) {
    x[name] = parameter.detach().to(at::kDouble).clone();
    m[name] = at::zeros_like(x[name]);
    v[name] = at::zeros_like(x[name]);
  }
  for (int t = 1; t <= 5; ++t) {
    double rate = 0.01 * t;
    for (const auto& [name, parameter] : store.items()) {
      at::Tensor gradient = name == "unused" ? at::zeros_like(parameter) : at::randn_like(parameter.detach());
      if (name != "unused") parameter.mutable_grad() = gradient;
      at::Tensor g = gradient.to(at::kDouble);
      if (parameter.dim() == 2) x[name].mul_(1 - rate * config.weight_decay);
      m[name] = config.beta1 * m[name] + (1 - config.beta1) * g;
      v[name] = config.beta2 * v[name] + (1 - config.beta2) * g * g;
      x[name] -= rate * (m[name] / (1 - std::pow(config.beta1, t))) /
                 ((v[name] / (1 - std::pow(config.beta2, t))).sqrt() + config.epsilon);
    }
    optimizer.step(rate);
  }
  for (const auto& [name, parameter] : store.items()) {
    EXPECT_TRUE(at::allclose(parameter.detach().to(at::kDouble), x[name], 1e-5, 1e-6)) << name;
  }
}

TEST(GradientClipping, DividesDownToTheLimitOnly) {
  ParameterStore store;
  store.add("a", at::zeros({2}).requires_grad_());
  store.add("b", at::zeros({1}).requires_grad_());
  store.get("a").mutable_grad() = at::tensor({2.0f, 3.0f});
  store.get("b").mutable_grad() = at::tensor({6.0f});
  EXPECT_NEAR(std::sqrt(gradient_square_sum(store)), 7, 1e-6);
  EXPECT_EQ(clip_divisor(7, 10), 1);
  EXPECT_EQ(clip_divisor(7, 0), 1);
  EXPECT_EQ(clip_divisor(7, 3.5), 2);
  // A step with a divisor is a step with smaller gradients.
  auto step = [](double gradient, double divisor) {
    ParameterStore one;
    one.add("w", at::ones({2, 2}).requires_grad_());
    AdamW optimizer(one, {});
    for (int i = 1; i <= 3; ++i) {
      one.get("w").mutable_grad() = at::full({2, 2}, gradient * i);
      optimizer.step(0.1, divisor);
    }
    return std::pair(one.get("w").detach(), optimizer.state().at("exp_avg.w"));
  };
  auto [weight, average] = step(6, 4);
  auto [expected_weight, expected_average] = step(1.5, 1);
  EXPECT_TRUE(at::allclose(weight, expected_weight, 1e-6));
  EXPECT_TRUE(at::allclose(average, expected_average, 1e-6));
}

TEST(Batches, AnEpochIsEveryWindowOnceWhateverTheMicroBatch) {
  TestFolder folder;
  make_test_data(folder / "data");
  auto data = std::make_shared<const TokenDataset>(TokenDataset::open(folder / "data", Split::kTrain));
  int64_t windows = window_count(*data, 32);
  TrainingBatches batches(data, 5, 32, 4);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < windows / 4; ++step) {
    for (int64_t window : batches.windows(step, 0, 4)) EXPECT_TRUE(seen.insert(window).second);
  }
  Batch whole = batches.read(3, 0, 4), first = batches.read(3, 0, 1), rest = batches.read(3, 1, 3);
  EXPECT_TRUE(at::equal(whole.token_ids, at::cat({first.token_ids, rest.token_ids})));
  EXPECT_TRUE(at::equal(whole.token_ids.slice(1, 1), whole.targets.slice(1, 0, -1)));
  EXPECT_NE(message_of<InputError>([&] { TrainingBatches(data, 5, 32, windows + 1); }).find("less than one batch"),
            std::string::npos);
}

TEST(Evaluate, CountsEveryTargetOnceWhateverTheBatch) {
  TestFolder folder;
  make_test_data(folder / "data");
  TokenDataset data = TokenDataset::open(folder / "data", Split::kValidation);
  ModelConfig config = test_model(data.vocabulary_size());
  Transformer model(config, 1);
  Evaluation one = evaluate(model, data, 1), many = evaluate(model, data, 7);
  EXPECT_EQ(one.tokens, data.tokens() - 1);
  EXPECT_NEAR(one.loss, many.loss, 1e-5);
  EXPECT_NEAR(
      one.bits_per_byte,
      one.loss * static_cast<double>(data.tokens()) / static_cast<double>(data.text_bytes()) / std::numbers::ln2,
      1e-12);
}

TEST(RunConfig, RefusesWhatCannotBeRun) {
  auto error = [](const std::vector<std::string>& overrides) {
    std::string text =
        "[model]\npreset='tiny'\n[data]\nfolder='d'\n[train]\ntokens=10000\nbatch_windows=4\nlearning_rate=0."
        "001\nwarmup_steps=5\n";
    return message_of<InputError>([&] {
      Config config = Config::parse(text, "run.toml", overrides);
      read_run_config(config);
    });
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({"residual.variant=rd_attnres", "residual.blocks=2", "residual.attention_routes=q|k|v"}), "");
  for (const auto& [override_text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"train.tokens=-1", "not between"},
           {"train.tokens=\"many\"", "not an integer"},
           {"train.warmup_steps=1000", "leave nothing"},
           {"train.schedule=linear", "unknown schedule"},
           {"train.milestones=[5000, 4000]", "must ascend"},
           {"train.milestones=[50000]", "must ascend"},
           {"train.micro_batch_windows=5", "not between"},
           {"train.learning_rate=nan", "not between"},
           {"train.token=5", "did you mean 'tokens'"},
           {"residual.variant=rd", "unknown variant"},
           {"residual.blocks=3", "not divided"},
           {"model.width=-32", "not between"},
           {"model.width=99999999999", "not between"},
           {"model.preset=large", "unknown preset"},
           {"seed=-1", "not between"},
       }) {
    EXPECT_NE(error({override_text}).find(expected), std::string::npos)
        << override_text << ": " << error({override_text});
  }
}

TEST(RunConfig, HashIgnoresWhatDoesNotShapeTheResult) {
  Json a = {{"seed", 1}, {"train", {{"tokens", 10}, {"log_interval", 1}}}, {"data", {{"folder", "x"}}}};
  Json b = a, c = a;
  b["train"]["log_interval"] = 2;
  b["data"]["folder"] = "y";
  c["train"]["tokens"] = 11;
  EXPECT_TRUE(differing_keys(a, b).empty());
  EXPECT_EQ(config_hash(a), config_hash(b));
  EXPECT_EQ(differing_keys(a, c), (std::vector<std::string>{"train.tokens"}));
  EXPECT_NE(config_hash(a), config_hash(c));
}

TEST(RunConfig, PrecisionIsPartOfTheRunWhereItIsNotFloat) {
  const auto canonical = [](const std::string& precision) {
    std::vector<std::string> overrides;
    if (!precision.empty()) overrides = {"train.precision=" + precision};
    Config config = Config::parse(
        "data.folder = \"x\"\nmodel.preset = \"tiny\"\n[train]\ntokens = 1024\nbatch_windows = 4\nlearning_rate = "
        "1e-3\nthreads = 1\n",
        "run.toml", overrides);
    return run_config_to_json(read_run_config(config));
  };
  EXPECT_EQ(canonical(""), canonical("fp32"));
  EXPECT_EQ(differing_keys(canonical(""), canonical("bf16")), (std::vector<std::string>{"train.precision"}));
  EXPECT_NE(message_of<InputError>([&] { canonical("fp16"); }).find("expected fp32 or bf16"), std::string::npos);
}

TEST(RunConfig, DataOrderHasASeedOfItsOwnOnlyWhereItDiffers) {
  const auto canonical = [](const std::string& overrides) {
    Config config =
        Config::parse(R"(
seed = 3
model.preset = "tiny"
data.folder = "x"
[train]
tokens = 1024
batch_windows = 4
learning_rate = 1e-3
threads = 1
)",
                      "run.toml", overrides.empty() ? std::vector<std::string>{} : std::vector{overrides});
    RunConfig run = read_run_config(config);
    EXPECT_EQ(run.seed, 3u);
    return std::pair{run.order_seed(), run_config_to_json(run)};
  };
  EXPECT_EQ(canonical("").first, 3u);
  EXPECT_EQ(canonical("data_order_seed=7").first, 7u);
  // Hashes of runs that were there before the key are what they were.
  EXPECT_FALSE(canonical("").second.contains("data_order_seed"));
  EXPECT_EQ(config_hash(canonical("").second), config_hash(canonical("data_order_seed=3").second));
  EXPECT_NE(config_hash(canonical("").second), config_hash(canonical("data_order_seed=7").second));
}

}  // namespace
}  // namespace depthroute
