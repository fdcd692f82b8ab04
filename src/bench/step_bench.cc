#include "bench/step_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <malloc.h>

#include "io/machine.h"
#include "model/transformer.h"
#include "train/optimizer.h"

namespace depthroute {
namespace {

// Matrix products of the step: `count` of [tokens, in] times [in, out], each with its two products of the backward pass.
struct Product {
  double count;
  int64_t in, out;
};

std::vector<Product> products_of(const ModelConfig& model) {
  auto layers = static_cast<double>(model.layers);
  return {{4 * layers, model.width, model.width},
          {2 * layers, model.width, model.mlp_hidden},
          {layers, model.mlp_hidden, model.width},
          {1, model.width, model.vocabulary}};
}

double limit_seconds(const ModelConfig& model, int64_t tokens) {
  at::NoGradGuard no_grad;
  double seconds = 0, flops = 0;
  for (const Product& product : products_of(model)) {
    at::Tensor x = at::ones({tokens, product.in}), weight = at::ones({product.out, product.in}),
               gradient = at::ones({tokens, product.out});
    auto all = [&] {
      at::linear(x, weight);
      at::mm(gradient, weight);
      at::mm(gradient.t(), x);
    };
    all();
    std::vector<double> times;
    for (double spent = 0; times.size() < 3 || (spent < 0.1 && times.size() < 1000); spent += times.back())
      times.push_back(seconds_of(all));
    seconds += product.count * spread_of(times).median;
    flops += product.count * 6 * static_cast<double>(tokens * product.in * product.out);
  }
  auto attention =
      6 * static_cast<double>(model.layers * model.context * model.width) * static_cast<double>(tokens);
  return seconds * (1 + attention / flops);
}

class Step {
 public:
  Step(const ModelConfig& config, const StepBenchOptions& options)
      : model_(config, 1), optimizer_(model_.parameters(), {}) {
    model_.recompute_sublayers(options.activation_checkpointing);
    at::manual_seed(1);
    ids_ = at::randint(0, config.vocabulary, {options.windows, config.context}, at::kLong);
    targets_ = at::randint(0, config.vocabulary, {options.windows, config.context}, at::kLong);
  }

  void run() {
    for (const auto& [name, parameter] : model_.parameters().items()) parameter.mutable_grad() = at::Tensor();
    (model_.loss_sum(ids_, targets_) / static_cast<double>(ids_.numel())).backward();
    clip_gradients(model_.parameters(), 1.0);
    optimizer_.step(1e-4);
  }

  const Transformer& model() const { return model_; }

 private:
  Transformer model_;
  AdamW optimizer_;
  at::Tensor ids_, targets_;
};

}  // namespace

StepBench bench_step(const std::vector<ModelConfig>& models, const StepBenchOptions& options,
                     const std::function<void(int64_t)>& on_progress) {
  StepBench bench;
  bench.tokens = options.windows * models[0].context;
  bench.variants.resize(models.size());
  std::vector<std::vector<double>> seconds(models.size()), relative(models.size()), shares(models.size());
  std::vector<double> limits;
  for (int64_t round = 0, done = 0; round < options.rounds; ++round) {
    limits.push_back(limit_seconds(models[0], bench.tokens));
    double first = 0;
    for (size_t i = 0; i < models.size(); ++i) {
      malloc_trim(0);  // what the model before has freed does not count as memory of this one
      reset_peak_memory();
      Step step(models[i], options);
      step.run();
      std::vector<double> times;
      for (int64_t s = 0; s < options.steps; ++s) times.push_back(seconds_of([&] { step.run(); }));
      seconds[i].insert(seconds[i].end(), times.begin(), times.end());
      double least = spread_of(times).least;
      if (i == 0) first = least;
      relative[i].push_back(first / least);
      shares[i].push_back(limits.back() / least);
      StepFigures& figures = bench.variants[i];
      figures.peak_bytes = std::max(figures.peak_bytes, static_cast<double>(peak_memory_bytes()));
      figures.variant = models[i].residual.variant;
      figures.parameters = step.model().parameters().element_count();
      figures.flops_per_token = training_flops_per_token(models[i]);
      figures.residual_bytes_per_token = step.model().residual().cost().values * sizeof(float);
      on_progress(++done);
    }
  }
  bench.limit_seconds = spread_of(limits);
  for (size_t i = 0; i < models.size(); ++i) {
    bench.variants[i].seconds = spread_of(seconds[i]);
    bench.variants[i].relative_to_first = spread_of(relative[i]).median;
    bench.variants[i].share_of_limit = spread_of(shares[i]).median;
  }
  return bench;
}

Json step_bench_to_json(const StepBench& bench) {
  Json variants = Json::array();
  for (const StepFigures& figures : bench.variants) {
    variants.push_back(
        json_object({{"variant", figures.variant},
                     {"parameters", figures.parameters},
                     {"flops_per_token", figures.flops_per_token},
                     {"residual_bytes_per_token", figures.residual_bytes_per_token},
                     {"step_seconds", spread_to_json(figures.seconds)},
                     {"tokens_per_second", static_cast<double>(bench.tokens) / figures.seconds.median},
                     {"relative_to_first", figures.relative_to_first},
                     {"share_of_limit", figures.share_of_limit},
                     {"peak_bytes", figures.peak_bytes}}));
  }
  return json_object({{"tokens_a_step", bench.tokens},
                      {"limit_step_seconds", spread_to_json(bench.limit_seconds)},
                      {"variants", variants}});
}

}  // namespace depthroute
