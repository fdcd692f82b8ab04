#include <csignal>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "io/signals.h"
#include "study/diagnostics.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace depthroute {
namespace {

struct TrainArguments {
  std::string config, out;
  std::vector<std::string> set;
};

void train(const TrainArguments& options) {
  Config file = Config::read(options.config, options.set);
  RunConfig config = read_run_config(file);
  catch_stop_signals();
  const ProcessGroup group = ProcessGroup::from_environment();
  TrainingOptions training;
  training.diagnostics = milestone_diagnostics();
  training.group = &group;
  TrainingOutcome outcome = run_training(config, options.out, training);
  if (!group.first()) {
    if (outcome == TrainingOutcome::kStopped) throw StoppedBySignal{stop_signal() != 0 ? stop_signal() : SIGTERM};
    return;
  }
  std::string checkpoint = find_checkpoint(options.out).string();
  switch (outcome) {
    case TrainingOutcome::kFinished:
      std::printf("finished: %s\n", checkpoint.c_str());
      break;
    case TrainingOutcome::kWasFinished:
      std::printf("already finished: %s\n", checkpoint.c_str());
      break;
    case TrainingOutcome::kStopped:
      std::printf("stopped and saved: %s; the same command continues\n", checkpoint.c_str());
      throw StoppedBySignal{stop_signal() != 0 ? stop_signal() : SIGTERM};
  }
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto options = std::make_shared<TrainArguments>();
  CLI::App* command =
      app.add_subcommand("train", "One training run from a config; continues by itself where it stopped");
  command->add_option("config", options->config, "The run's TOML file")->required();
  command->add_option("--out", options->out, "The run's folder")->required();
  command
      ->add_option("--set", options->set, "key=value over the config, e.g. train.tokens=1000000; may be repeated")
      ->allow_extra_args(false);
  command->footer(
      "Examples: depthroute train configs/run/micro.toml --out runs/micro --set residual.variant=rd_attnres\n"
      "          torchrun --no-python --nproc-per-node 2 depthroute train configs/run/micro.toml --out runs/micro");
  command->callback([options] { train(*options); });
}

}  // namespace depthroute
