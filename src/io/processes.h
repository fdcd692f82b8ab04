// Several processes at a time, for work that shares nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace depthroute {

// The file of the running program.
std::string own_program();

// Runs the commands (a program's file and its arguments; no shell) in order, at most `jobs` at a time. Whole lines of
// what a command writes to standard error go to on_line with the command's index; its standard output is dropped.
// After a stop signal (see signals.h) nothing is started any more and the running ones get SIGTERM; they also do
// where this process dies. Returns each command's exit code, 128 + the signal for one that was killed, nothing for
// one that was not started. RunError where a process cannot be made.
std::vector<std::optional<int>> run_processes(const std::vector<std::vector<std::string>>& commands, int64_t jobs,
                                              const std::function<void(size_t, const std::string&)>& on_line);

}  // namespace depthroute
