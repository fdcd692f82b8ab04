#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "io/progress.h"
#include "study/diagnostics.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

namespace depthroute {
namespace {

struct CheckpointArguments {
  std::string checkpoint, data, split = "val";
  int64_t batch_windows = 8, windows = 32;
  bool json = false;
};

CLI::App* add_checkpoint_command(CLI::App& app, const char* name, const char* description,
                                 CheckpointArguments& options) {
  CLI::App* command = app.add_subcommand(name, description);
  command->add_option("checkpoint", options.checkpoint, "A checkpoint, or a run's folder for its newest one")
      ->required();
  command->add_option("--data", options.data, "The prepared data's folder")->required();
  command->add_option("--split", options.split, "train, val or test")
      ->check(CLI::IsMember({"train", "val", "test"}))
      ->capture_default_str();
  command->add_option("--batch-windows", options.batch_windows, "Windows in memory at a time")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--json", options.json, "One JSON object on standard output");
  return command;
}

// Checked, and on data of its own vocabulary.
struct Loaded {
  std::filesystem::path checkpoint;
  Transformer model;
  TokenDataset data;
};

Loaded load(const CheckpointArguments& options) {
  std::filesystem::path checkpoint = find_checkpoint(options.checkpoint);
  verify_checkpoint(checkpoint);
  Transformer model = load_model(checkpoint);
  int64_t vocabulary = model.config().vocabulary;
  TokenDataset data = TokenDataset::open(options.data, split_named(options.split), vocabulary);
  return {checkpoint, std::move(model), std::move(data)};
}

void evaluate_command(const CheckpointArguments& options) {
  Loaded loaded = load(options);
  Progress progress("evaluate", loaded.data.tokens() - 1, "tokens");
  Evaluation result =
      evaluate(loaded.model, loaded.data, options.batch_windows, [&](int64_t done) { progress.update(done); });
  progress.finish();
  if (options.json) {
    Json json = {{"checkpoint", loaded.checkpoint.string()}, {"data", options.data}, {"split", options.split}};
    json.update(evaluation_to_json(result));
    std::printf("%s\n", dump_json(json, 2).c_str());
    return;
  }
  std::printf("%s on the %s split of %s: loss %.4f nats a token, perplexity %.2f, ", loaded.checkpoint.c_str(),
              options.split.c_str(), options.data.c_str(), result.loss, result.perplexity());
  std::printf("%.4f bits a byte, %ld tokens\n", result.bits_per_byte, static_cast<long>(result.tokens));
}

void print_diagnostics(const DepthDiagnostics& diagnostics) {
  std::printf("%-28s %-4s %8s %8s  mean weight of each source (nats; over %ld tokens)\n", "read", "role", "entropy",
              "largest", static_cast<long>(diagnostics.tokens));
  for (const ReadStatistics& read : diagnostics.reads) {
    std::printf("%-28s %-4s %8.4f %8.4f ", read.site.c_str(), read.role.c_str(), read.entropy, read.largest);
    for (size_t i = 0; i < read.mean.size(); ++i) std::printf(" %s %.3f", read.sources[i].c_str(), read.mean[i]);
    std::printf("\n");
  }
  if (diagnostics.divergence.empty()) return;
  std::printf(
      "\nJensen-Shannon divergence of the QK and V routes (nats): per token %.4f, of the mean distributions %.4f\n",
      diagnostics.mean_per_token(), diagnostics.mean_of_means());
  for (const RouteDivergence& layer : diagnostics.divergence) {
    std::printf("  layer %-3ld %8.4f %8.4f\n", static_cast<long>(layer.layer), layer.per_token, layer.of_means);
  }
}

void diagnose_command(const CheckpointArguments& options) {
  Loaded loaded = load(options);
  DepthDiagnostics diagnostics = diagnose(loaded.model, loaded.data, options.windows, options.batch_windows);
  if (options.json) {
    Json json = {{"checkpoint", loaded.checkpoint.string()}, {"variant", loaded.model.config().residual.variant}};
    json.update(diagnostics_to_json(diagnostics));
    std::printf("%s\n", dump_json(json, 2).c_str());
  } else if (diagnostics.reads.empty()) {
    std::printf("variant '%s' has no depth reads\n", loaded.model.config().residual.variant.c_str());
  } else {
    print_diagnostics(diagnostics);
  }
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto options = std::make_shared<CheckpointArguments>();
  CLI::App* command = add_checkpoint_command(
      app, "evaluate", "Loss, perplexity and bits per byte of a checkpoint on a whole split", *options);
  command->footer("Example: depthroute evaluate runs/micro --data data/gcide --split test");
  command->callback([options] { evaluate_command(*options); });
}

void add_diagnose_command(CLI::App& app) {
  auto options = std::make_shared<CheckpointArguments>();
  CLI::App* command = add_checkpoint_command(app, "diagnose", "What a checkpoint's depth reads look at", *options);
  command->add_option("--windows", options->windows, "Windows of the split to look at")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->footer("Example: depthroute diagnose runs/quickstart/runs/rd_attnres-seed1 --data data/gcide");
  command->callback([options] { diagnose_command(*options); });
}

}  // namespace depthroute
