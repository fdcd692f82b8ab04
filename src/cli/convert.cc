#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "io/error.h"
#include "io/format.h"
#include "model/conversion.h"
#include "train/checkpoint.h"

namespace depthroute {
namespace {

struct ConvertArguments {
  std::string checkpoint, variant, out;
  uint64_t seed = 1;
};

void print_names(const char* title, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::printf("%s:\n", title);
  for (const std::string& name : names) std::printf("  %s\n", name.c_str());
}

void convert(const ConvertArguments& options) {
  if (std::filesystem::exists(options.out)) fail_input("'{}' is there already: choose another --out", options.out);
  std::filesystem::path checkpoint = find_checkpoint(options.checkpoint);
  verify_checkpoint(checkpoint);
  Transformer source = load_model(checkpoint);
  ModelConfig config = source.config();
  config.residual = named_residual_config(options.variant, config.layers);
  check_model_config(config);
  Conversion conversion = convert_model(source, config, options.seed);
  // A checkpoint like any other, with an optimizer that has not done a step.
  write_checkpoint(options.out, conversion.model, AdamW(conversion.model.parameters(), {}), {});
  std::vector<std::string> renamed;
  for (const auto& [name, from] : conversion.copied_from) renamed.push_back(format_text("{} from {}", name, from));
  std::printf("%s as %s: %s\n", checkpoint.c_str(), options.variant.c_str(), options.out.c_str());
  std::printf("%zu tensors copied as they are\n", conversion.copied.size());
  print_names("copied from another tensor", renamed);
  print_names("initialised", conversion.initialised);
  print_names("left out", conversion.left_out);
}

}  // namespace

void add_convert_command(CLI::App& app) {
  auto options = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand("convert", "A checkpoint of another variant from one that is there");
  command->add_option("checkpoint", options->checkpoint, "A checkpoint, or a run's folder for its newest one")
      ->required();
  command->add_option("--variant", options->variant, "The variant to make")->required();
  command->add_option("--out", options->out, "The folder of the new checkpoint; must not be there")->required();
  command->add_option("--seed", options->seed, "Of tensors that the checkpoint has nothing for")
      ->capture_default_str();
  command->footer(
      "Tensors are matched by name; what is initialised or left out is listed. To train from a checkpoint, of this "
      "or "
      "another variant, set train.initial_checkpoint.\n"
      "Example: depthroute convert runs/block --variant rd_attnres --out converted");
  command->callback([options] { convert(*options); });
}

}  // namespace depthroute
