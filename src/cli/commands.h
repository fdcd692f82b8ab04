// One function per command: it adds the subcommand with its options; the subcommand's callback does the work by
// calling the library.
#pragma once
#include <CLI/CLI.hpp>

namespace depthroute {

void add_train_command(CLI::App& app);
void add_evaluate_command(CLI::App& app);
void add_study_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_diagnose_command(CLI::App& app);
void add_convert_command(CLI::App& app);
void add_status_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_plan_command(CLI::App& app);

// Exit code of a command that ended in good order after a signal: 128 and its number, as a shell reports it.
struct StoppedBySignal {
  int signal;
};

}  // namespace depthroute
