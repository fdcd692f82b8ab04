#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"
#include "model/conversion.h"
#include "model/initialisation.h"
#include "model/model_config.h"
#include "model/transformer.h"

namespace depthroute {
namespace {

ModelConfig config_of(const std::string& size, const std::string& variant) {
  ModelConfig config = preset(size);
  config.residual = named_residual_config(variant, config.layers);
  return config;
}

int64_t parameter_count(const std::string& size, const std::string& variant) {
  int64_t count = 0;
  for (const ParameterSpec& spec : model_parameters(config_of(size, variant))) {
    int64_t elements = 1;
    for (int64_t extent : spec.shape) elements *= extent;
    count += elements;
  }
  return count;
}

// The closed formula: V d + L (4 d^2 + 3 d m + 2 d) + d for a Llama with tied embeddings.
int64_t standard_count(int64_t vocabulary, int64_t d, int64_t layers, int64_t m) {
  return vocabulary * d + layers * (4 * d * d + 3 * d * m + 2 * d) + d;
}

TEST(Presets, HaveThePapersParameterCounts) {
  EXPECT_EQ(parameter_count("s", "standard"), standard_count(32768, 576, 16, 2880));
  EXPECT_EQ(parameter_count("s", "standard"), 119'753'280);
  EXPECT_EQ(parameter_count("m", "standard"), standard_count(32768, 832, 24, 4160));
  EXPECT_EQ(parameter_count("m", "standard"), 342'957'888);
  for (auto [size, d, layers] : {std::tuple{"s", 576, 16}, std::tuple{"m", 832, 24}}) {
    // Two reads a layer and one at the end, each a query and a key norm; RD-AttnRes adds one vector a layer.
    int64_t block = parameter_count(size, "standard") + (2 * layers + 1) * 2 * d;
    EXPECT_EQ(parameter_count(size, "block_attnres"), block);
    EXPECT_EQ(parameter_count(size, "rd_attnres"), block + layers * d);
    for (const char* same : {"full_attnres", "rd_tied", "rd_frozen_v", "mhar"})
      EXPECT_EQ(parameter_count(size, same), block) << same;
    for (const char* same : {"rd_average", "rd_mhar", "mlp_split_attnres"})
      EXPECT_EQ(parameter_count(size, same), block + layers * d) << same;
    EXPECT_EQ(parameter_count(size, "split_attnres"), block + 2 * layers * d);
    // Delta has no read at the end.
    EXPECT_EQ(parameter_count(size, "delta_attnres"), block - 2 * d);
    EXPECT_EQ(parameter_count(size, "delta_block"), block - 2 * d);
    int64_t standard = parameter_count(size, "standard"), mudd = 2 * d * (layers - 1), dense = 0;
    for (int64_t i = 0; i < layers; ++i) {
      dense += i + 2;
      int64_t streams = i + 1 < layers ? 4 : 1, weights = streams * (i + 2);
      int64_t hidden = ((streams == 1 ? 4 : 1) * weights / 64 + 1) * 64;
      mudd += hidden * d + weights * hidden + weights;
    }
    EXPECT_EQ(parameter_count(size, "denseformer"), standard + dense);
    EXPECT_EQ(parameter_count(size, "muddformer"), standard + mudd);
  }
}

TEST(Initialisation, SharedTensorsOfTwoVariantsHaveTheSameBits) {
  Transformer standard(config_of("tiny", "standard"), 7), other(config_of("tiny", "standard"), 8);
  for (const std::string& variant : variant_names()) {
    Transformer routed(config_of("tiny", variant), 7);
    int64_t shared = 0;
    for (const auto& [name, parameter] : standard.parameters().items()) {
      if (!routed.parameters().contains(name)) continue;  // MUDDFormer has its input norms by stream
      ++shared;
      EXPECT_TRUE(at::equal(parameter, routed.parameters().get(name))) << variant << " " << name;
      bool drawn = parameter.dim() == 2;
      EXPECT_EQ(at::equal(parameter, other.parameters().get(name)), !drawn) << name;
    }
    EXPECT_GE(shared, 2 + 8 * standard.config().layers) << variant;
  }
}

TEST(Initialisation, DrawsNormalValuesOfTheGivenDeviation) {
  ParameterSpec spec{"x", {200, 500}, Initialisation::kNormal, 0.02};
  at::Tensor x = draw_parameter(spec, 1).to(at::kDouble);
  double n = static_cast<double>(x.numel());
  EXPECT_NEAR(x.mean().item<double>(), 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(x.std().item<double>() / 0.02, 1, 5 / std::sqrt(2 * n));
  EXPECT_NEAR((x / 0.02).pow(4).mean().item<double>(), 3, 5 * std::sqrt(96 / n));  // a normal's fourth moment
  // Successive values, and the same values of tensors with other names, are uncorrelated.
  at::Tensor flat = x.flatten() / 0.02,
             y = draw_parameter({"y", {200, 500}, Initialisation::kNormal, 1}, 1).to(at::kDouble).flatten();
  EXPECT_NEAR((flat.slice(0, 1) * flat.slice(0, 0, -1)).mean().item<double>(), 0, 5 / std::sqrt(n));
  EXPECT_NEAR((flat * y).mean().item<double>(), 0, 5 / std::sqrt(n));
}

TEST(Initialisation, FollowsThePlanOfEachTensor) {
  ModelConfig config = config_of("mini", "rd_attnres");
  Transformer model(config, 1);
  auto deviation = [&](const std::string& name) { return model.parameters().get(name).std().item<double>(); };
  double d = static_cast<double>(config.width), m = static_cast<double>(config.mlp_hidden),
         depth = std::sqrt(2.0 * 8);
  EXPECT_NEAR(deviation("model.embed_tokens.weight"), 0.02, 0.0005);
  EXPECT_NEAR(deviation("model.layers.3.self_attn.q_proj.weight"), 1 / std::sqrt(d), 0.003);
  EXPECT_NEAR(deviation("model.layers.3.self_attn.o_proj.weight"), 1 / std::sqrt(d) / depth, 0.001);
  EXPECT_NEAR(deviation("model.layers.3.mlp.down_proj.weight"), 1 / std::sqrt(m) / depth, 0.0005);
  EXPECT_EQ(model.parameters().get("model.layers.3.self_attn.depth_read.query.v").abs().max().item<float>(), 0);
  EXPECT_TRUE(model.parameters().get("model.norm.weight").eq(1).all().item<bool>());
}

TEST(Transformer, IsCausal) {
  for (const char* variant : {"standard", "rd_attnres", "full_attnres"}) {
    Transformer model(config_of("tiny", variant), 3);
    at::NoGradGuard no_grad;
    at::manual_seed(5);
    at::Tensor ids = at::randint(0, 256, {2, 20}, at::kLong), changed = ids.clone();
    changed.select(1, 12).fill_(17);
    at::Tensor a = model.logits(ids), b = model.logits(changed);
    EXPECT_TRUE(at::allclose(a.slice(1, 0, 12), b.slice(1, 0, 12), 1e-5, 1e-6)) << variant;
    EXPECT_FALSE(at::allclose(a.slice(1, 12), b.slice(1, 12), 1e-5, 1e-6)) << variant;
  }
}

TEST(Transformer, StartsNearTheUniformLoss) {
  for (const std::string& variant : variant_names()) {
    Transformer model(config_of("tiny", variant), 3);
    at::NoGradGuard no_grad;
    at::manual_seed(6);
    at::Tensor ids = at::randint(0, 256, {4, 32}, at::kLong);
    EXPECT_NEAR(model.loss_sum(ids, ids.roll(1, 1)).item<double>() / static_cast<double>(ids.numel()),
                std::log(256.0), 0.3)
        << variant;
  }
}

TEST(Transformer, RefusesParametersOfAnotherModel) {
  ModelConfig config = config_of("tiny", "standard");
  EXPECT_NE(message_of<RunError>([&] { Transformer(config, ParameterStore()); }), "");
  ParameterStore wrong;
  for (const ParameterSpec& spec : model_parameters(config)) wrong.add(spec.name, at::zeros({3}));
  EXPECT_NE(message_of<RunError>([&] { Transformer(config, std::move(wrong)); }).find("shape"), std::string::npos);
}

TEST(ModelConfig, JsonRoundTrip) {
  for (const std::string& variant : variant_names()) {
    ModelConfig config = config_of("tiny", variant);
    Json json = model_config_to_json(config);
    EXPECT_EQ(model_config_to_json(model_config_from_json(json, "here")), json) << variant;
    EXPECT_EQ(json["model_type"] == "llama", variant == "standard");
  }
}

TEST(ModelConfig, AbsurdSizesAreRefused) {
  auto error = [](auto change) {
    ModelConfig config = preset("tiny");
    change(config);
    return message_of<InputError>([&] { check_model_config(config); });
  };
  EXPECT_EQ(error([](ModelConfig&) {}), "");
  EXPECT_NE(error([](ModelConfig& c) { c.layers = 0; }).find("model.layers"), std::string::npos);
  EXPECT_NE(error([](ModelConfig& c) { c.width = -5; }).find("model.width"), std::string::npos);
  EXPECT_NE(error([](ModelConfig& c) { c.vocabulary = int64_t{1} << 40; }).find("model.vocabulary"),
            std::string::npos);
  EXPECT_NE(error([](ModelConfig& c) { c.heads = 3; }).find("does not divide"), std::string::npos);
  EXPECT_NE(error([](ModelConfig& c) { c.heads = 32; }).find("even"), std::string::npos);
  EXPECT_NE(message_of<InputError>([] { preset("S"); }).find("did you mean 's'"), std::string::npos);
}

// A model whose parameters are all random: no query is zero, no norm one.
Transformer random_model(const std::string& variant) {
  ModelConfig config = config_of("tiny", variant);
  ParameterStore parameters;
  for (const ParameterSpec& spec : model_parameters(config)) {
    at::Tensor tensor = at::randn(spec.shape, at::kDouble) * 0.3;
    if (spec.initialisation == Initialisation::kOne) tensor += 1;
    parameters.add(spec.name, tensor);
  }
  return {config, std::move(parameters)};
}

TEST(Conversion, RefinedRoutesComputeTheSameFunction) {
  at::NoGradGuard no_grad;
  at::manual_seed(11);
  at::Tensor ids = at::randint(0, 256, {2, 12}, at::kLong);
  for (auto [from, to] : {std::pair{"block_attnres", "rd_attnres"},
                          {"block_attnres", "split_attnres"},
                          {"block_attnres", "mlp_split_attnres"},
                          {"block_attnres", "rd_tied"},
                          {"rd_attnres", "split_attnres"},
                          {"mhar", "rd_mhar"},
                          {"muddformer", "muddformer"}}) {
    Transformer source = random_model(from);
    Conversion conversion = convert_model(source, config_of("tiny", to), 1);
    EXPECT_TRUE(conversion.initialised.empty()) << from << " " << to << " " << conversion.initialised[0];
    at::Tensor expected = source.logits(ids), actual = conversion.model.logits(ids);
    EXPECT_TRUE(at::allclose(actual, expected, 1e-9, 1e-9)) << from << " " << to;
    EXPECT_GT(expected.std().item<double>(), 0.1) << from;
  }
}

TEST(Conversion, SaysWhatHasNoCounterpart) {
  ModelConfig config = config_of("tiny", "rd_attnres");
  Transformer source(config_of("tiny", "standard"), 3), fresh(config, 5);
  Conversion conversion = convert_model(source, config, 5);
  EXPECT_EQ(conversion.copied.size(), source.parameters().items().size());
  EXPECT_TRUE(conversion.copied_from.empty() && conversion.left_out.empty());
  for (const auto& [name, parameter] : fresh.parameters().items()) {
    const ParameterStore& origin = source.parameters().contains(name) ? source.parameters() : fresh.parameters();
    EXPECT_TRUE(at::equal(conversion.model.parameters().get(name), origin.get(name))) << name;
    EXPECT_TRUE(conversion.model.parameters().get(name).requires_grad());
  }
  Conversion back = convert_model(conversion.model, config_of("tiny", "standard"), 5);
  EXPECT_EQ(back.left_out, conversion.initialised);
  // The two routes' queries have no one counterpart.
  Conversion merged = convert_model(conversion.model, config_of("tiny", "block_attnres"), 5);
  EXPECT_EQ(merged.initialised.size(), static_cast<size_t>(config.layers));
  EXPECT_EQ(merged.left_out.size(), static_cast<size_t>(2 * config.layers));
  config.width = 64;
  EXPECT_NE(message_of<InputError>([&] { convert_model(source, config, 5); }).find("model.width"),
            std::string::npos);
}

// 6 per weight and token for a Llama, the term everyone quotes, is most of it at S.
TEST(Flops, AreSixPerWeightPlusAttention) {
  ModelConfig config = preset("s");
  double weights = static_cast<double>(parameter_count("s", "standard"));
  double attention = 6.0 * 16 * 1024 * 576;
  EXPECT_NEAR(training_flops_per_token(config) / (6 * weights + attention), 1, 1e-3);
  EXPECT_GT(training_flops_per_token(config_of("s", "rd_attnres")),
            training_flops_per_token(config_of("s", "block_attnres")));
  EXPECT_LT(training_flops_per_token(config_of("s", "rd_attnres")) / training_flops_per_token(config), 1.01);
}

// Mixed precision: the loss within bfloat16's rounding, gradients in float32 that point the same way, for every variant.
TEST(Transformer, BfloatProductsStayCloseToFloat) {
  for (const std::string& variant : variant_names()) {
    ModelConfig config = config_of("tiny", variant);
    at::manual_seed(5);
    at::Tensor ids = at::randint(0, config.vocabulary, {2, config.context}, at::kLong);
    auto run = [&](bool bfloat16, bool recompute) {
      Transformer model(config, 3);
      model.multiply_in_bfloat16(bfloat16);
      model.recompute_sublayers(recompute);
      at::Tensor loss = model.loss_sum(ids.narrow(1, 0, config.context - 1), ids.narrow(1, 1, config.context - 1));
      loss.backward();
      std::vector<at::Tensor> results = {loss.detach()};
      for (const auto& [name, parameter] : model.parameters().items()) {
        if (!parameter.grad().defined()) continue;
        EXPECT_EQ(parameter.grad().scalar_type(), at::kFloat) << name;
        results.push_back(parameter.grad().flatten());
      }
      return results;
    };
    const std::vector<at::Tensor> exact = run(false, false), rounded = run(true, false), again = run(true, true);
    const double loss = exact[0].item<double>(), change = std::abs(rounded[0].item<double>() - loss) / loss;
    EXPECT_GT(change, 0) << variant;
    EXPECT_LT(change, 2e-3) << variant;
    EXPECT_TRUE(at::equal(rounded[0], again[0])) << variant;
    ASSERT_EQ(exact.size(), rounded.size()) << variant;
    const auto all = [](const std::vector<at::Tensor>& tensors) {
      return at::cat(std::vector<at::Tensor>(tensors.begin() + 1, tensors.end()));
    };
    EXPECT_GT(at::cosine_similarity(all(exact), all(rounded), 0).item<double>(), 0.999) << variant;
  }
}

// Recomputing the sublayers changes memory, not results.
TEST(Transformer, RecomputedSublayersGiveTheSameGradients) {
  for (const char* variant : {"standard", "rd_attnres", "split_attnres", "muddformer"}) {
    ModelConfig config = preset("tiny");
    config.residual = named_residual_config(variant, config.layers);
    at::Tensor ids = at::randint(0, config.vocabulary, {2, config.context}, at::kLong);
    auto run = [&](bool recompute) {
      Transformer model(config, 3);
      model.recompute_sublayers(recompute);
      at::Tensor loss = model.loss_sum(ids.narrow(1, 0, config.context - 1), ids.narrow(1, 1, config.context - 1));
      // The table of positions becomes one of another length before the backward pass.
      at::NoGradGuard no_grad;
      model.logits(ids.narrow(1, 0, 5));
      at::AutoGradMode recording(true);
      loss.backward();
      std::map<std::string, at::Tensor> results = {{"loss", loss.detach()}};
      for (const auto& [name, parameter] : model.parameters().items()) {
        if (parameter.grad().defined()) results[name] = parameter.grad();
      }
      return results;
    };
    std::map<std::string, at::Tensor> kept = run(false), recomputed = run(true);
    ASSERT_EQ(kept.size(), recomputed.size()) << variant;
    EXPECT_TRUE(at::equal(kept["loss"], recomputed["loss"])) << variant;
    for (const auto& [name, gradient] : kept) {
      double scale = gradient.abs().max().item<double>();
      EXPECT_LT((gradient - recomputed[name]).abs().max().item<double>(), 1e-5 * scale + 1e-7)
          << variant << " " << name;
    }
  }
}

}  // namespace
}  // namespace depthroute
