#include "cli/data.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "data/data_stats.h"
#include "io/format.h"
#include "io/json.h"

namespace depthroute {
namespace {

struct StatsArguments {
  std::filesystem::path folder;
  bool verify = false, json = false;
};

void run(const StatsArguments& arguments) {
  const DataStats stats = data_stats(arguments.folder, arguments.verify);
  std::fputs(format_text("{}\n", arguments.json ? dump_json(to_json(stats), 2) : to_text(stats)).c_str(), stdout);
}

}  // namespace

void add_data_command(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Look at prepared data");
  data->require_subcommand(1);
  auto arguments = std::make_shared<StatsArguments>();
  CLI::App* stats = data->add_subcommand("stats", "Documents, tokens, bytes and hashes of each split");
  stats->add_option("folder", arguments->folder, "A folder made by prepare")->required();
  stats->add_flag("--verify", arguments->verify, "Read everything again and compare the checksums");
  stats->add_flag("--json", arguments->json, "One JSON object");
  stats->footer("Example:\n  depthroute data stats data/gcide --verify");
  stats->callback([arguments] { run(*arguments); });
}

}  // namespace depthroute
