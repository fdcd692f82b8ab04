#include "bench/step_bench.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <malloc.h>

#include <memory>

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
    for (double spent = 0; times.size() < 5 || (spent < 0.1 && times.size() < 1000); spent += times.back())
      times.push_back(seconds_of(all));
    seconds += product.count * spread_of(times).least;
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
    optimizer_.step(1e-4, clip_divisor(std::sqrt(gradient_square_sum(model_.parameters())), 1.0));
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
  int64_t done = 0;
  double kept_bytes = 0;
  for (const ModelConfig& model : models) {
    malloc_trim(0);  // what the model before has freed does not count as memory of this one
    reset_peak_memory();
    Step step(model, options);
    step.run();
    StepFigures figures;
    figures.variant = model.residual.variant;
    figures.parameters = step.model().parameters().element_count();
    figures.flops_per_token = training_flops_per_token(model);
    figures.residual_bytes_per_token = step.model().residual().cost().values * sizeof(float);
    figures.peak_bytes = static_cast<double>(peak_memory_bytes());
    bench.variants.push_back(figures);
    kept_bytes += 3 * sizeof(float) * static_cast<double>(figures.parameters);  // weights and moments
    on_progress(++done);
  }
  bool keep = kept_bytes < 0.6 * machine_memory_bytes();
  std::vector<std::unique_ptr<Step>> steps(models.size());
  std::vector<std::vector<double>> seconds(models.size()), relative(models.size()), shares(models.size());
  std::vector<double> limits;
  for (int64_t round = 0; round < options.rounds; ++round) {
    limits.push_back(limit_seconds(models[0], bench.tokens));
    std::vector<double> least(models.size());
    for (size_t turn = 0; turn < models.size(); ++turn) {
      size_t i = round % 2 == 0 ? turn : models.size() - 1 - turn;
      if (!steps[i]) {
        steps[i] = std::make_unique<Step>(models[i], options);
        steps[i]->run();
      }
      std::vector<double> times;
      for (int64_t s = 0; s < options.steps; ++s) times.push_back(seconds_of([&] { steps[i]->run(); }));
      if (!keep) steps[i].reset();
      seconds[i].insert(seconds[i].end(), times.begin(), times.end());
      least[i] = spread_of(times).least;
      on_progress(++done);
    }
    for (size_t i = 0; i < models.size(); ++i) {
      relative[i].push_back(least[0] / least[i]);
      shares[i].push_back(limits.back() / least[i]);
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
