#include <ATen/Parallel.h>

#include <cstdio>
#include <memory>
#include <thread>

#include "bench/depth_read_bench.h"
#include "bench/step_bench.h"
#include "cli/commands.h"
#include "io/error.h"
#include "io/machine.h"
#include "io/progress.h"
#include "study/study_config.h"

namespace depthroute {
namespace {

struct Shared {
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency()), rounds = 5;
  bool json = false;
};

void add_shared(CLI::App* command, Shared& shared) {
  command->add_option("--threads", shared.threads, "Threads")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--rounds", shared.rounds, "Measurements of each; the median counts")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_flag("--json", shared.json, "One JSON object on standard output");
}

void prepare_process(const Shared& shared) {
  at::set_num_threads(static_cast<int>(shared.threads));
  keep_freed_memory();  // as in training
}

struct DepthReadOptions : Shared {
  std::vector<int64_t> tokens = {4096}, width = {576}, sources = {1, 2, 3, 5, 9, 17, 33}, routes = {1, 2};
  int64_t heads = 1;
};

void bench_depth_read_command(const DepthReadOptions& options) {
  prepare_process(options);
  Json results = Json::array();
  if (!options.json) {
    std::printf("%s, %ld threads, float32; times are medians of %ld rounds, in ms\n", machine_description().c_str(),
                static_cast<long>(options.threads), static_cast<long>(options.rounds));
    std::printf("%8s %6s %4s %2s %9s %9s %9s %9s %8s %10s %10s\n", "tokens", "width", "K", "R", "forward",
                "+backward", "copy", "ATen", "GB/s", "roofline", "/copy");
  }
  for (int64_t tokens : options.tokens) {
    for (int64_t width : options.width) {
      if (width % options.heads != 0) fail_input("--heads {} does not divide --width {}", options.heads, width);
      for (int64_t sources : options.sources) {
        for (int64_t routes : options.routes) {
          DepthReadFigures figures =
              bench_depth_read({tokens, width, sources, routes, options.heads}, options.rounds);
          Json json = depth_read_figures_to_json(figures);
          if (!options.json) {
            std::printf("%8ld %6ld %4ld %2ld %9.3f %9.3f %9.3f %9.3f %8.1f %9.0f%% %10.2f\n",
                        static_cast<long>(tokens), static_cast<long>(width), static_cast<long>(sources),
                        static_cast<long>(routes), figures.forward.median * 1e3,
                        figures.forward_backward.median * 1e3, figures.copy.median * 1e3,
                        figures.forward_reference.median * 1e3, json["gigabytes_per_second"].get<double>(),
                        json["share_of_roofline"].get<double>() * 100, json["forward_over_copy"].get<double>());
            std::fflush(stdout);
          }
          results.push_back(json);
        }
      }
    }
  }
  if (options.json) {
    Json json =
        json_object({{"machine", machine_description()}, {"threads", options.threads}, {"results", results}});
    std::printf("%s\n", dump_json(json, 2).c_str());
  }
}

struct StepOptions : Shared {
  std::string preset = "micro", study;
  std::vector<std::string> variants = {"standard", "block_attnres", "rd_attnres"};
  int64_t windows = 1, steps = 1, context = 0;
  bool activation_checkpointing = false;
};

std::vector<ModelConfig> preset_models(const StepOptions& options) {
  std::vector<ModelConfig> models;
  std::vector<std::string> variants = options.variants;
  if (variants == std::vector<std::string>{"all"}) variants = variant_names();
  for (const std::string& variant : variants) {
    models.push_back(preset(options.preset));
    if (options.context > 0) models.back().context = options.context;
    models.back().residual = named_residual_config(variant, models.back().layers);
    check_model_config(models.back());
  }
  return models;
}

// A study's variants as its runs train them: the sizes, the windows and the threads are the study's.
std::vector<ModelConfig> study_models(StepOptions& options, Json& description) {
  Config file = Config::read(options.study, {});
  const StudyConfig study = read_study_config(file);
  const TrainConfig& train = study.runs[0].config.train;
  options.windows = train.micro_batch_windows;
  options.activation_checkpointing = train.activation_checkpointing;
  if (train.threads > 0) options.threads = train.threads;
  description = json_object({{"study", study.name}, {"study_hash", study.hash}});
  std::vector<ModelConfig> models;
  for (const StudyRun& run : study.runs) {
    if (run.config.seed == study.runs[0].config.seed) models.push_back(run.config.model);
  }
  return models;
}

void bench_step_command(StepOptions options) {
  Json description = json_object({{"preset", options.preset}});
  const std::vector<ModelConfig> models =
      options.study.empty() ? preset_models(options) : study_models(options, description);
  prepare_process(options);
  Progress progress("bench", static_cast<int64_t>(models.size()) * (options.rounds + 1), "turns");
  StepBench bench = bench_step(models,
                               {.windows = options.windows,
                                .rounds = options.rounds,
                                .steps = options.steps,
                                .activation_checkpointing = options.activation_checkpointing},
                               [&](int64_t done) { progress.update(done); });
  progress.finish();
  Json json = step_bench_to_json(bench);
  if (options.json) {
    json["machine"] = machine_description();
    json["threads"] = options.threads;
    json.update(description);
    std::printf("%s\n", dump_json(json, 2).c_str());
    return;
  }
  std::printf(
      "%s, %ld threads, %s %s, %ld tokens a step; limit of the standard residual by its matrix products: %.4g "
      "tokens/s\n",
      machine_description().c_str(), static_cast<long>(options.threads), options.study.empty() ? "preset" : "study",
      options.study.empty() ? options.preset.c_str() : options.study.c_str(), static_cast<long>(bench.tokens),
      static_cast<double>(bench.tokens) / bench.limit_seconds.median);
  std::printf("%-18s %12s %10s %9s %9s %18s %10s %16s\n", "variant", "parameters", "tokens/s", "relative",
              "of limit", "step s, range", "peak GB", "residual B/token");
  for (size_t i = 0; i < bench.variants.size(); ++i) {
    const StepFigures& figures = bench.variants[i];
    const Json& item = json["variants"][i];
    std::printf("%-18s %12ld %10.4g %9.3f %9.3f %8.3f - %7.3f %10.2f %16.0f\n", figures.variant.c_str(),
                static_cast<long>(figures.parameters), item["tokens_per_second"].get<double>(),
                item["relative_to_first"].get<double>(), item["share_of_limit"].get<double>(),
                figures.seconds.least, figures.seconds.most, figures.peak_bytes / 1e9,
                figures.residual_bytes_per_token);
  }
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Speed, against limits that are measured in the same run");
  bench->require_subcommand(1);

  auto read = std::make_shared<DepthReadOptions>();
  CLI::App* depth_read = bench->add_subcommand("depth-read", "The depth read against the memory it has to move");
  auto sizes = CLI::Range(int64_t{1}, int64_t{1} << 24);
  depth_read->add_option("--tokens", read->tokens, "Numbers of tokens")->check(sizes)->capture_default_str();
  depth_read->add_option("--width", read->width, "Widths")->check(sizes)->capture_default_str();
  depth_read->add_option("--sources", read->sources, "Numbers of sources K")
      ->check(CLI::Range(int64_t{1}, kMaxDepthSources))
      ->capture_default_str();
  depth_read->add_option("--routes", read->routes, "Numbers of routes R")
      ->check(CLI::Range(int64_t{1}, kMaxDepthRoutes))
      ->capture_default_str();
  depth_read->add_option("--heads", read->heads, "Heads; divides the width")->check(sizes)->capture_default_str();
  add_shared(depth_read, *read);
  depth_read->footer(
      "roofline: the time of reading the sources and writing the mixtures at the measured speed of each, as a "
      "share of "
      "the read's\nExample: depthroute bench depth-read --sources 9 --routes 1 2");
  depth_read->callback([read] { bench_depth_read_command(*read); });

  auto step = std::make_shared<StepOptions>();
  CLI::App* train = bench->add_subcommand("step", "The training step of several variants, in turn in each round");
  train->add_option("--preset", step->preset, "tiny, micro, mini, s or m")->capture_default_str();
  std::vector<CLI::Option*> own = {
      train->get_option("--preset"),
      train->add_option("--variants", step->variants, "Variants, or all; the first is what others are relative to")
          ->capture_default_str(),
      train->add_option("--windows", step->windows, "Windows of a step")->check(sizes)->capture_default_str(),
      train->add_option("--context", step->context, "Tokens of a window (0: the preset's)")
          ->check(CLI::NonNegativeNumber)};
  CLI::Option* study = train->add_option("--study", step->study,
                                         "A study's TOML file: its variants, sizes, micro-batch and threads");
  for (CLI::Option* option : own) study->excludes(option);
  train->add_option("--steps", step->steps, "Steps of a model in its turn; the fastest counts")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  train->add_flag("--activation-checkpointing", step->activation_checkpointing,
                  "Compute the sublayers once more in the backward pass instead of keeping what they compute");
  add_shared(train, *step);
  train->footer("Example: depthroute bench step --preset s --variants standard block_attnres rd_attnres");
  train->callback([step] { bench_step_command(*step); });
}

}  // namespace depthroute
