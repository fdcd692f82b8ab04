#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "study/status.h"

namespace depthroute {

void add_status_command(CLI::App& app) {
  struct StatusOptions {
    std::string folder;
    bool json = false;
  };
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command =
      app.add_subcommand("status", "Where a run or a study stands: done, running, stale, failed and why");
  command->add_option("folder", options->folder, "A study's or a run's folder")->required();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->footer("Example: depthroute status runs/quickstart");
  command->callback([options] {
    const Status status = read_status(options->folder);
    if (options->json) {
      std::printf("%s\n", dump_json(status_to_json(status), 2).c_str());
    } else {
      std::fputs(status_text(status).c_str(), stdout);
    }
  });
}

}  // namespace depthroute
