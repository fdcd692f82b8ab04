#include "cli/data.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "data/data_show.h"
#include "data/data_stats.h"
#include "io/format.h"
#include "io/json.h"

namespace depthroute {
namespace {

struct StatsArguments {
  std::filesystem::path folder;
  bool verify = false, json = false;
};

struct ShowArguments {
  std::filesystem::path folder;
  std::string split = "train";
  int64_t index = 0;
  bool json = false;
};

// Texts may hold NUL.
void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void run(const StatsArguments& arguments) {
  const DataStats stats = data_stats(arguments.folder, arguments.verify);
  print(arguments.json ? dump_json(to_json(stats), 2) : to_text(stats));
}

void run(const ShowArguments& arguments) {
  const ShownDocument document = show_document(arguments.folder, split_named(arguments.split), arguments.index);
  print(arguments.json ? dump_json(to_json(document), 2) : to_text(document));
}

void add_show_command(CLI::App& data) {
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* show = data.add_subcommand("show", "One document, out of the shards");
  show->add_option("folder", arguments->folder, "A folder made by prepare")->required();
  show->add_option("--split", arguments->split, "train, val or test")->capture_default_str();
  show->add_option("--index", arguments->index, "The document's number, from 0")->capture_default_str();
  show->add_flag("--json", arguments->json, "One JSON object");
  show->footer("Example:\n  depthroute data show data/gcide --split val --index 3");
  show->callback([arguments] { run(*arguments); });
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
  add_show_command(*data);
}

}  // namespace depthroute
