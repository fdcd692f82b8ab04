// The program: its commands, and the one place where errors are shown. Exit code 2 for bad input or usage, 1 for a
// failure while running.
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/data.h"
#include "cli/prepare.h"
#include "io/error.h"
#include "io/format.h"
#include "io/text.h"

namespace {

int show_error(const std::string& message, int code) {
  // One line, whatever a library has put into its message.
  std::string line = message.substr(0, message.find('\n'));
  std::fflush(stdout);
  std::fprintf(stderr, "depthroute: error: %s\n", line.c_str());
  return code;
}

void check_command(const CLI::App& app, int argc, char** argv) {
  // CLI11 would only say that a subcommand is missing.
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return;
    names.push_back(command->get_name());
  }
  depthroute::fail_input("unknown command '{}'; did you mean '{}'? (see depthroute --help)", argv[1],
                         depthroute::nearest_name(argv[1], names));
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    check_command(app, argc, argv);
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) depthroute::fail_run("cannot write standard output");
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return show_error(std::string(error.what()) + " (see depthroute --help)", 2);
  } catch (const depthroute::StoppedBySignal& stop) {
    return 128 + stop.signal;
  } catch (const depthroute::InputError& error) {
    return show_error(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return show_error("out of memory", 1);
  } catch (const std::exception& error) {
    return show_error(error.what(), 1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "depthroute trains language models whose layers read across depth, and settles which way of reading is "
      "better.",
      "depthroute");
  app.set_version_flag("--version", "depthroute " DEPTHROUTE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  depthroute::add_prepare_command(app);
  depthroute::add_data_command(app);
  depthroute::add_plan_command(app);
  depthroute::add_train_command(app);
  depthroute::add_evaluate_command(app);
  depthroute::add_convert_command(app);
  depthroute::add_study_command(app);
  depthroute::add_report_command(app);
  depthroute::add_diagnose_command(app);
  depthroute::add_status_command(app);
  depthroute::add_bench_command(app);
  return run(app, argc, argv);
}
