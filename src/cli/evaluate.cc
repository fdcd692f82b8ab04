#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "io/format.h"
#include "io/progress.h"
#include "study/checkpoint_comparison.h"
#include "study/diagnostics.h"
#include "study/route_findings.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

namespace depthroute {
namespace {

struct CheckpointArguments {
  std::string checkpoint, data, split = "val";
  int64_t batch_windows = 8, windows = 32;
  std::string against;
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

Transformer load_verified(const std::filesystem::path& checkpoint) {
  verify_checkpoint(checkpoint);
  return load_model(checkpoint);
}

Loaded load(const CheckpointArguments& options) {
  std::filesystem::path checkpoint = find_checkpoint(options.checkpoint);
  Transformer model = load_verified(checkpoint);
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
  for (const DepthReadSummary& read : diagnostics.reads) {
    std::printf("%-28s %-4s %8.4f %8.4f ", read.site.c_str(), read.role.c_str(), read.entropy, read.largest);
    for (size_t i = 0; i < read.mean.size(); ++i) std::printf(" %s %.3f", read.sources[i].c_str(), read.mean[i]);
    std::printf("\n");
  }
  std::printf("\n");
  for (const std::string& finding : route_findings(diagnostics.reads, diagnostics.divergence))
    std::printf("%s\n", finding.c_str());
  if (diagnostics.divergence.empty()) return;
  std::printf(
      "\nJensen-Shannon divergence of the QK and V routes (nats): per token %.4f, of the mean distributions %.4f\n",
      diagnostics.mean_per_token(), diagnostics.mean_of_means());
  for (const LayerDivergence& layer : diagnostics.divergence) {
    std::printf("  layer %-3ld %8.4f %8.4f\n", static_cast<long>(layer.layer), layer.per_token, layer.of_means);
  }
}

void print_comparison(const CheckpointComparison& comparison, const std::string& against) {
  std::printf("\nAgainst %s, over %ld tokens: loss %.4f, there %.4f, difference %+.4f nats a token\n",
              against.c_str(), static_cast<long>(comparison.tokens), comparison.loss, comparison.other_loss,
              comparison.difference());
  if (!comparison.reads.empty())
    std::printf("%-28s %-4s  Jensen-Shannon divergence of the two (nats): per token, of the means\n", "read",
                "role");
  for (const ReadChange& read : comparison.reads)
    std::printf("%-28s %-4s %8.4f %8.4f\n", read.site.c_str(), read.role.c_str(), read.per_token, read.of_means);
  if (!comparison.unmatched.empty())
    std::printf("reads of one of the two only: %s\n", join_text(comparison.unmatched, ", ").c_str());
}

void diagnose_command(const CheckpointArguments& options) {
  Loaded loaded = load(options);
  DepthDiagnostics diagnostics = diagnose(loaded.model, loaded.data, options.windows, options.batch_windows);
  std::filesystem::path against;
  CheckpointComparison comparison;
  if (!options.against.empty()) {
    against = find_checkpoint(options.against);
    comparison = compare_checkpoints(loaded.model, load_verified(against), loaded.data, options.windows,
                                     options.batch_windows);
  }
  if (options.json) {
    Json json = {{"checkpoint", loaded.checkpoint.string()}, {"variant", loaded.model.config().residual.variant}};
    json.update(diagnostics_to_json(diagnostics));
    json["findings"] = route_findings(diagnostics.reads, diagnostics.divergence);
    if (!against.empty()) {
      json["against"] = json_object({{"checkpoint", against.string()}});
      json["against"].update(checkpoint_comparison_to_json(comparison));
    }
    std::printf("%s\n", dump_json(json, 2).c_str());
    return;
  }
  if (diagnostics.reads.empty()) {
    std::printf("variant '%s' has no depth reads\n", loaded.model.config().residual.variant.c_str());
  } else {
    print_diagnostics(diagnostics);
  }
  if (!against.empty()) print_comparison(comparison, against.string());
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
  command->add_option("--against", options->against,
                      "Another checkpoint or run: how far its loss and its depth reads are from this one's");
  command->footer("Example: depthroute diagnose runs/quickstart/runs/rd_attnres-seed1 --data data/gcide");
  command->callback([options] { diagnose_command(*options); });
}

}  // namespace depthroute
