#include <cstdio>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "io/progress.h"
#include "study/plan.h"
#include "study/power_plan.h"
#include "study/study_config.h"
#include "train/schedule.h"

namespace depthroute {
namespace {

struct PlanArguments {
  std::string config, preset, variant;
  std::vector<std::string> set;
  bool json = false;
  PowerOptions power;

  bool plans_power() const { return power.standard_deviation || power.difference || !power.study_folder.empty(); }
};

// What to plan: models of one size, and how they are trained where a config says so.
struct Subject {
  std::vector<ModelConfig> models;
  int64_t micro_batch_windows = 1, tokens = 0, runs_per_model = 1;
  int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  bool activation_checkpointing = false;
  std::optional<PowerPlan> power{};
};

Subject subject_of_preset(const PlanArguments& options) {
  Subject subject;
  std::vector<std::string> variants = variant_names();
  if (!options.variant.empty()) variants = {options.variant};
  for (const std::string& variant : variants) {
    ModelConfig model = preset(options.preset);
    model.residual = named_residual_config(variant, model.layers);
    subject.models.push_back(model);
  }
  return subject;
}

Subject subject_of_config(const PlanArguments& options) {
  Config file = Config::read(options.config, options.set);
  std::vector<RunConfig> runs;
  Subject subject;
  if (file.has("variants")) {
    StudyConfig study = read_study_config(file);
    for (const StudyRun& run : study.runs) runs.push_back(run.config);
    if (options.plans_power()) {
      subject.power = plan_power(read_protocol(study.protocol, options.config), options.power);
    }
  } else {
    if (options.plans_power()) fail_input("plan: '{}' is no study, and one run has no power", options.config);
    runs.push_back(read_run_config(file));
  }
  subject.micro_batch_windows = runs[0].train.micro_batch_windows;
  subject.activation_checkpointing = runs[0].train.activation_checkpointing;
  const TrainConfig& train = runs[0].train;
  const int64_t context = runs[0].model.context;
  // With the branches that decay to the milestones.
  subject.tokens = train.extendable() ? trained_steps(train, context) * train.batch_tokens(context) : train.tokens;
  subject.threads = runs[0].train.threads;
  for (const RunConfig& run : runs) {
    if (run.seed == runs[0].seed) subject.models.push_back(run.model);
  }
  subject.runs_per_model = static_cast<int64_t>(runs.size() / subject.models.size());
  return subject;
}

void print_table(const Subject& subject, const std::vector<VariantPlan>& plans, double gemm_rate) {
  const ModelConfig& model = subject.models[0];
  std::printf(
      "%ld layers, width %ld, %ld heads, MLP %ld, vocabulary %ld, context %ld; matrix products here: %.0f "
      "GFLOP/s\n",
      static_cast<long>(model.layers), static_cast<long>(model.width), static_cast<long>(model.heads),
      static_cast<long>(model.mlp_hidden), static_cast<long>(model.vocabulary), static_cast<long>(model.context),
      gemm_rate / 1e9);
  std::printf("%-20s %14s %12s %14s %16s %10s %12s%s\n", "variant", "parameters", "added", "MFLOP/token",
              "residual B/token", "memory GB", "tokens/s <=", subject.tokens > 0 ? "  time a run >=" : "");
  double seconds = 0;
  for (const VariantPlan& plan : plans) {
    double rate = gemm_rate / plan.flops_per_token;
    std::printf("%-20s %14ld %+12ld %14.3f %16.0f %10.2f %12.0f", plan.variant.c_str(),
                static_cast<long>(plan.parameters), static_cast<long>(plan.residual_parameters),
                plan.flops_per_token / 1e6, plan.residual_bytes_per_token, plan.memory_bytes / 1e9, rate);
    if (subject.tokens > 0) {
      double run_seconds = static_cast<double>(subject.tokens) / rate;
      seconds += run_seconds * static_cast<double>(subject.runs_per_model);
      std::printf("  %s", format_duration(run_seconds).c_str());
    }
    std::printf("\n");
  }
  if (subject.tokens > 0) {
    std::printf("%zu runs of %s tokens: at least %s at the speed of matrix products alone\n",
                plans.size() * static_cast<size_t>(subject.runs_per_model),
                format_count(static_cast<double>(subject.tokens)).c_str(), format_duration(seconds).c_str());
  }
}

void run(const PlanArguments& options) {
  if (options.config.empty() == options.preset.empty()) fail_input("plan: give either a config file or --preset");
  if (options.config.empty() && options.plans_power())
    fail_input("plan: power needs a study's config, not --preset");
  Subject subject = options.config.empty() ? subject_of_preset(options) : subject_of_config(options);
  std::vector<VariantPlan> plans =
      plan_variants(subject.models, subject.micro_batch_windows, subject.activation_checkpointing);
  double gemm_rate = measure_gemm_rate(subject.models[0], subject.threads);
  if (!options.json) {
    print_table(subject, plans, gemm_rate);
    if (subject.power) std::printf("\n%s", power_plan_text(*subject.power).c_str());
    return;
  }
  Json json = {{"gemm_flops_per_second", gemm_rate}, {"variants", Json::array()}};
  for (const VariantPlan& plan : plans) {
    Json item = plan_to_json(plan);
    item["limit_tokens_per_second"] = gemm_rate / plan.flops_per_token;
    if (subject.tokens > 0)
      item["least_seconds_a_run"] = static_cast<double>(subject.tokens) * plan.flops_per_token / gemm_rate;
    json["variants"].push_back(item);
  }
  if (subject.power) json["power"] = power_plan_to_json(*subject.power);
  std::printf("%s\n", dump_json(json, 2).c_str());
}

}  // namespace

void add_plan_command(CLI::App& app) {
  auto options = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "Parameters, FLOPs, memory and time before a run");
  command->add_option("config", options->config, "A run's or a study's TOML file");
  command->add_option("--preset", options->preset, "tiny, micro, mini, s or m, with every variant");
  command->add_option("--variant", options->variant, "With --preset: this variant only");
  command->add_option("--set", options->set, "key=value over the config; may be repeated")->allow_extra_args(false);
  command->add_option("--power-from", options->power.study_folder,
                      "A study's folder whose pairs say how many seeds this study needs");
  command
      ->add_option("--standard-deviation", options->power.standard_deviation,
                   "Of the paired differences, in nats a token, instead of --power-from")
      ->check(CLI::PositiveNumber);
  command->add_option("--difference", options->power.difference,
                      "To be shown, in nats a token (default: the study's decision.minimal_difference)");
  command->add_option("--power", options->power.power, "The chance of showing it")
      ->check(CLI::Range(0.01, 0.9999))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->footer(
      "Examples: depthroute plan --preset s\n"
      "          depthroute plan configs/study/micro.toml --power-from runs/study-micro --difference 0.02");
  command->callback([options] { run(*options); });
}

}  // namespace depthroute
