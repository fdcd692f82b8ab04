// What the benchmarks count; never how long anything takes.
#include <gtest/gtest.h>

#include "bench/depth_read_bench.h"
#include "bench/step_bench.h"
#include "model/transformer.h"

namespace depthroute {
namespace {

TEST(Spread, IsMedianAndEnds) {
  Spread odd = spread_of({5, 1, 3}), even = spread_of({4, 1, 2, 9});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 5);
  EXPECT_EQ(even.median, 3);
}

TEST(DepthReadBench, CountsTheBytesOfTheDefinition) {
  DepthReadFigures figures =
      bench_depth_read({.tokens = 50, .width = 24, .sources = 5, .routes = 3, .heads = 2}, 2);
  EXPECT_EQ(figures.source_bytes, 4.0 * 5 * 50 * 24);
  EXPECT_EQ(figures.written_bytes, 4.0 * 3 * 50 * 24);
  for (const Spread& spread :
       {figures.read, figures.write, figures.copy, figures.forward, figures.forward_backward}) {
    EXPECT_GT(spread.least, 0);
    EXPECT_LE(spread.least, spread.median);
    EXPECT_LE(spread.median, spread.most);
  }
  Json json = depth_read_figures_to_json(figures);
  EXPECT_DOUBLE_EQ(json["forward_over_copy"].get<double>(), figures.forward.median / figures.copy.median);
}

TEST(StepBench, DescribesEveryModel) {
  std::vector<ModelConfig> models;
  for (const char* variant : {"standard", "rd_attnres"}) {
    models.push_back(preset("tiny"));
    models.back().residual = named_residual_config(variant, models.back().layers);
  }
  int64_t called = 0;
  StepBench bench =
      bench_step(models, {.windows = 2, .rounds = 2, .steps = 1}, [&](int64_t done) { EXPECT_EQ(done, ++called); });
  EXPECT_EQ(called, 6);
  EXPECT_EQ(bench.tokens, 2 * models[0].context);
  EXPECT_GT(bench.limit_seconds.least, 0);
  ASSERT_EQ(bench.variants.size(), 2u);
  for (size_t i = 0; i < models.size(); ++i) {
    EXPECT_EQ(bench.variants[i].variant, models[i].residual.variant);
    EXPECT_EQ(bench.variants[i].parameters, Transformer(models[i], 1).parameters().element_count());
    EXPECT_GT(bench.variants[i].seconds.least, 0);
    EXPECT_GT(bench.variants[i].peak_bytes, 4.0 * 4 * static_cast<double>(bench.variants[i].parameters));
  }
  EXPECT_DOUBLE_EQ(bench.variants[0].relative_to_first, 1.0);
  EXPECT_GT(bench.variants[1].relative_to_first, 0);
  EXPECT_GT(bench.variants[1].share_of_limit, 0);
}

}  // namespace
}  // namespace depthroute
