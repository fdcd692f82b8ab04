#include "residual/residual.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace depthroute {
namespace {

ParameterStore random_parameters(const Residual& residual) {
  ParameterStore store;
  for (const ParameterSpec& spec : residual.parameters())
    store.add(spec.name, at::randn(spec.shape, at::kDouble).requires_grad_());
  return store;
}

// Runs a stream with made-up sublayers (the sum of their inputs, scaled) and returns its output.
at::Tensor run_stream(const Residual& residual, const ParameterStore& parameters, const at::Tensor& embedding,
                      int64_t layers, const DepthProbe& probe = {}) {
  std::unique_ptr<ResidualStream> stream = residual.begin(parameters, embedding, probe);
  for (int64_t layer = 0; layer < layers; ++layer) {
    AttentionInputs attention = stream->attention_inputs(layer);
    stream->write_attention(layer, attention.query * 0.3 + attention.key * 0.2 - attention.value * 0.1);
    MlpInputs mlp = stream->mlp_inputs(layer);
    stream->write_mlp(layer, at::tanh(mlp.gate) * mlp.up);
  }
  return stream->output();
}

constexpr int64_t kLayers = 4, kWidth = 8;
const ResidualShape kShape = {kLayers, kWidth, 1e-6};

TEST(Residual, EveryNamedVariantRunsAndUsesItsParameters) {
  at::manual_seed(1);
  at::Tensor embedding = at::randn({2, 3, kWidth}, at::kDouble);
  for (const std::string& variant : variant_names()) {
    std::unique_ptr<Residual> residual = make_residual(named_residual_config(variant, kLayers), kShape);
    ParameterStore parameters = random_parameters(*residual);
    at::Tensor output = run_stream(*residual, parameters, embedding, kLayers);
    EXPECT_EQ(output.sizes(), embedding.sizes()) << variant;
    output.square().sum().backward();
    for (const auto& [name, parameter] : parameters.items()) {
      // The first sublayer of Delta reads the running sum alone.
      bool unused = variant.starts_with("delta_") && name.starts_with("model.layers.0.self_attn.depth_read");
      EXPECT_EQ(parameter.grad().defined(), !unused) << variant << " " << name;
    }
  }
}

TEST(Residual, SourceNamesAreThoseOfTheReads) {
  at::Tensor embedding = at::ones({1, 2, kWidth}, at::kDouble);
  for (const std::string& variant : variant_names()) {
    ResidualConfig config = named_residual_config(variant, kLayers);
    if (config.layers_per_block > 0) config.layers_per_block = 3;  // the last block is shorter
    std::unique_ptr<Residual> residual = make_residual(config, kShape);
    int64_t reads = 0;
    run_stream(*residual, random_parameters(*residual), embedding, kLayers,
               [&](const std::string& site, const std::string& role, const at::Tensor& probabilities) {
                 ++reads;
                 EXPECT_EQ(static_cast<int64_t>(residual->source_names(site).size()), probabilities.size(1))
                     << variant << site << role;
                 EXPECT_TRUE(at::allclose(probabilities.sum(1), at::ones_like(probabilities.select(1, 0))))
                     << variant << site;
               });
    bool has_reads = !residual->source_names("model.layers.1.mlp").empty();
    EXPECT_EQ(reads > 0, has_reads) << variant;
    EXPECT_EQ(has_reads, variant != "standard" && variant != "denseformer" && variant != "muddformer") << variant;
  }
}

// Sources of a read, by hand: the embedding, completed blocks (sums of outputs), the running sum.
TEST(AttentionResidual, BlocksAreSumsOfOutputsWithoutTheEmbedding) {
  ResidualConfig config = named_residual_config("block_attnres", 2);
  config.layers_per_block = 1;
  ResidualShape shape = {2, kWidth, 1e-6};
  std::unique_ptr<Residual> residual = make_residual(config, shape);
  ParameterStore parameters;
  for (const ParameterSpec& spec : residual->parameters()) {
    bool zero = spec.initialisation == Initialisation::kZero;
    parameters.add(spec.name, zero ? at::zeros(spec.shape, at::kDouble) : at::ones(spec.shape, at::kDouble));
  }
  at::manual_seed(2);
  at::Tensor embedding = at::randn({1, 2, kWidth}, at::kDouble);
  std::vector<at::Tensor> outputs;
  for (int i = 0; i < 4; ++i) outputs.push_back(at::randn({1, 2, kWidth}, at::kDouble));

  // Queries of zero make every read the plain mean of its sources.
  auto stream = residual->begin(parameters, embedding, {});
  auto norm = [](const at::Tensor& x) { return x / (x.square().mean(-1, true) + 1e-6).sqrt(); };
  auto expect_mean = [&](const at::Tensor& actual, const std::vector<at::Tensor>& sources) {
    EXPECT_TRUE(at::allclose(actual, norm(at::stack(sources).mean(0)), 1e-12, 1e-12));
  };
  expect_mean(stream->attention_inputs(0).value, {embedding});
  stream->write_attention(0, outputs[0]);
  expect_mean(stream->mlp_inputs(0).up, {embedding, outputs[0]});
  stream->write_mlp(0, outputs[1]);
  at::Tensor block = outputs[0] + outputs[1];
  expect_mean(stream->attention_inputs(1).query, {embedding, block});
  stream->write_attention(1, outputs[2]);
  expect_mean(stream->mlp_inputs(1).gate, {embedding, block, outputs[2]});
  stream->write_mlp(1, outputs[3]);
  EXPECT_TRUE(at::allclose(stream->output(), (embedding + block + outputs[2] + outputs[3]) / 3, 1e-12, 1e-12));
}

ParameterStore initial_parameters(const Residual& residual) {
  ParameterStore parameters;
  for (const ParameterSpec& spec : residual.parameters()) {
    at::Tensor tensor = at::zeros(spec.shape, at::kDouble);
    if (spec.initialisation == Initialisation::kOne) tensor.fill_(1);
    if (spec.initialisation == Initialisation::kNormal) tensor.normal_();
    if (spec.initialisation == Initialisation::kNewestSource) tensor.select(-1, tensor.size(-1) - 1).fill_(1);
    parameters.add(spec.name, tensor);
  }
  return parameters;
}

TEST(DenseVariants, StartAsTheStandardResidual) {
  at::manual_seed(9);
  at::Tensor embedding = at::randn({2, 3, kWidth}, at::kDouble);
  auto output = [&](const std::string& variant) {
    std::unique_ptr<Residual> residual = make_residual(named_residual_config(variant, kLayers), kShape);
    return run_stream(*residual, initial_parameters(*residual), embedding, kLayers);
  };
  at::Tensor standard = output("standard");
  for (const char* variant : {"denseformer", "muddformer"})
    EXPECT_TRUE(at::allclose(output(variant), standard, 1e-12, 1e-12)) << variant;
}

// By hand: the running sum plus the mean of what was added to it, by sublayer or by block of one layer.
TEST(Delta, AddsTheMeanOfWhatWasAddedAtFirst) {
  at::manual_seed(10);
  at::Tensor embedding = at::randn({1, 2, kWidth}, at::kDouble);
  std::vector<at::Tensor> outputs;
  for (int i = 0; i < 4; ++i) outputs.push_back(at::randn({1, 2, kWidth}, at::kDouble));
  for (bool blocks : {false, true}) {
    ResidualConfig config = named_residual_config(blocks ? "delta_block" : "delta_attnres", 2);
    if (blocks) config.layers_per_block = 1;
    std::unique_ptr<Residual> residual = make_residual(config, {2, kWidth, 1e-6});
    ParameterStore parameters = initial_parameters(*residual);
    auto stream = residual->begin(parameters, embedding, {});
    auto norm = [](const at::Tensor& x) { return x / (x.square().mean(-1, true) + 1e-6).sqrt(); };
    auto expect_sum = [&](const at::Tensor& actual, const at::Tensor& x, const std::vector<at::Tensor>& sources) {
      at::Tensor expected = sources.empty() ? x : x + at::stack(sources).mean(0);
      EXPECT_TRUE(at::allclose(actual, norm(expected), 1e-12, 1e-12)) << blocks;
    };
    at::Tensor x = embedding, block = outputs[0] + outputs[1];
    expect_sum(stream->attention_inputs(0).value, x, {});
    stream->write_attention(0, outputs[0]);
    x = x + outputs[0];
    expect_sum(stream->mlp_inputs(0).up, x, blocks ? std::vector{embedding} : std::vector{embedding, outputs[0]});
    stream->write_mlp(0, outputs[1]);
    x = x + outputs[1];
    expect_sum(stream->attention_inputs(1).query, x,
               blocks ? std::vector{embedding, block} : std::vector{embedding, outputs[0], outputs[1]});
    stream->write_attention(1, outputs[2]);
    x = x + outputs[2];
    expect_sum(stream->mlp_inputs(1).gate, x,
               blocks ? std::vector{embedding, block} : std::vector{embedding, outputs[0], outputs[1], outputs[2]});
    stream->write_mlp(1, outputs[3]);
    EXPECT_TRUE(at::allclose(stream->output(), x + outputs[3], 1e-12, 1e-12));
  }
}

TEST(AttentionResidual, TiedControlHasTheBitsOfBlockAttnRes) {
  auto check = [](Implementation implementation, int64_t layers) {
    for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      at::manual_seed(3);
      at::Tensor embedding = at::randn({2, 5, 24}, dtype);
      std::vector<at::Tensor> outputs;
      std::vector<ParameterStore> stores(2);
      size_t which = 0;
      for (const char* variant : {"block_attnres", "rd_tied"}) {
        ResidualConfig config = named_residual_config(variant, layers);
        config.implementation = implementation;
        std::unique_ptr<Residual> residual = make_residual(config, {layers, 24, 1e-6});
        at::manual_seed(4);  // the two have as many parameters of the same shapes, in the same order
        for (const ParameterSpec& spec : residual->parameters()) {
          stores[which].add(spec.name, at::randn(spec.shape, dtype).requires_grad_());
        }
        outputs.push_back(run_stream(*residual, stores[which], embedding, layers));
        outputs.back().square().sum().backward();
        ++which;
      }
      EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
      ASSERT_EQ(stores[0].items().size(), stores[1].items().size());
      for (size_t i = 0; i < stores[0].items().size(); ++i) {
        at::Tensor a = stores[0].items()[i].second.grad(), b = stores[1].items()[i].second.grad();
        double tolerance = dtype == at::kDouble ? 1e-10 : 1e-3;
        EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance)) << stores[0].items()[i].first;
      }
    }
  };
  for (Implementation implementation : {Implementation::kReference, Implementation::kFused}) {
    check(implementation, kLayers);
    check(implementation, 16);  // blocks of four sublayers: reads in two phases
  }
}

TEST(AttentionResidual, RoutesAddOneQueryALayer) {
  auto elements = [](const std::string& variant) {
    int64_t count = 0;
    for (const ParameterSpec& spec : make_residual(named_residual_config(variant, kLayers), kShape)->parameters()) {
      count += spec.shape[0];
    }
    return count;
  };
  int64_t parent = elements("block_attnres");
  EXPECT_EQ(elements("rd_attnres"), parent + kLayers * kWidth);
  EXPECT_EQ(elements("split_attnres"), parent + 2 * kLayers * kWidth);
  EXPECT_EQ(elements("mlp_split_attnres"), parent + kLayers * kWidth);
  for (const char* same : {"full_attnres", "mhar", "rd_tied", "rd_frozen_v"})
    EXPECT_EQ(elements(same), parent) << same;
}

TEST(ResidualConfig, RolesArePartitions) {
  EXPECT_EQ(parse_attention_roles("qk|v"), (std::vector<std::string>{"qk", "v"}));
  EXPECT_EQ(parse_attention_roles("v|q|k"), (std::vector<std::string>{"v", "q", "k"}));
  for (const char* bad : {"", "q", "qk", "qkv|", "q||kv", "qqv", "qk|w", "qkvv"}) {
    EXPECT_NE(message_of<InputError>([&] { parse_attention_roles(bad); }), "") << bad;
  }
  EXPECT_EQ(join_roles(parse_mlp_roles("g|u")), "g|u");
  EXPECT_NE(message_of<InputError>([] { parse_mlp_roles("gu"); }), "");
}

TEST(ResidualConfig, ContradictionsAreRefused) {
  EXPECT_NE(message_of<UnknownVariantError>([] { named_residual_config("rd_atnres", 4); }).find("'rd_attnres'"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] { parse_control("tide"); }).find("'tied'"), std::string::npos);
  ResidualConfig config = named_residual_config("block_attnres", kLayers);
  config.depth_heads = 3;
  EXPECT_NE(message_of<InputError>([&] { make_residual(config, kShape); }).find("does not divide"),
            std::string::npos);
  config = named_residual_config("block_attnres", kLayers);
  config.control = DepthControl::kTied;
  EXPECT_NE(message_of<InputError>([&] { make_residual(config, kShape); }).find("two attention routes"),
            std::string::npos);
  EXPECT_NE(message_of<InputError>([] {
              make_residual(named_residual_config("full_attnres", 100), {100, 8, 1e-6});
            }).find("sources"),
            std::string::npos);
}

}  // namespace
}  // namespace depthroute
