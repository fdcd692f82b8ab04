#include "io/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "io/error.h"
#include "io/signals.h"

namespace depthroute {
namespace {

struct Process {
  size_t index = 0;
  pid_t pid = -1;
  int descriptor = -1;  // its standard error
  std::string text{};   // of a line that has no end yet
  bool told_to_stop = false;
};

Process start(size_t index, const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_run("cannot make a pipe: {}", std::strerror(errno));
  // Everything that allocates comes before the fork: other threads may hold the allocator's locks.
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    // A group of its own: Ctrl-C reaches this process alone, which passes it on once.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  close(null);
  if (pid < 0) {
    close(ends[0]);
    fail_run("cannot start a process: {}", std::strerror(errno));
  }
  return {.index = index, .pid = pid, .descriptor = ends[0]};
}

// False at the end of the text.
bool read_lines(Process& process, const std::function<void(size_t, const std::string&)>& on_line) {
  char buffer[4096];
  ssize_t count = read(process.descriptor, buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return true;
  bool more = count > 0;
  if (more) process.text.append(buffer, static_cast<size_t>(count));
  if (!more && !process.text.empty()) process.text += '\n';
  for (size_t end; (end = process.text.find('\n')) != std::string::npos; process.text.erase(0, end + 1)) {
    on_line(process.index, process.text.substr(0, end));
  }
  return more;
}

int wait_for(const Process& process) {
  close(process.descriptor);
  int status = 0;
  while (waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::vector<std::optional<int>> run_processes(const std::vector<std::vector<std::string>>& commands, int64_t jobs,
                                              const std::function<void(size_t, const std::string&)>& on_line) {
  std::vector<std::optional<int>> codes(commands.size());
  std::vector<Process> running;
  size_t next = 0;
  while (true) {
    while (stop_signal() == 0 && next < commands.size() && std::ssize(running) < jobs) {
      running.push_back(start(next, commands[next]));
      ++next;
    }
    if (running.empty()) return codes;
    std::vector<pollfd> polled;
    for (const Process& process : running) polled.push_back({process.descriptor, POLLIN, 0});
    constexpr int kMilliseconds = 200;  // how soon a stop signal is seen that comes between two calls
    int ready = poll(polled.data(), polled.size(), kMilliseconds);
    for (Process& process : running) {
      if (stop_signal() != 0 && !process.told_to_stop) process.told_to_stop = kill(process.pid, SIGTERM) == 0;
    }
    if (ready <= 0) continue;
    std::vector<Process> still_running;
    for (size_t i = 0; i < running.size(); ++i) {
      if (polled[i].revents == 0 || read_lines(running[i], on_line)) {
        still_running.push_back(std::move(running[i]));
      } else {
        codes[running[i].index] = wait_for(running[i]);
      }
    }
    running = std::move(still_running);
  }
}

}  // namespace depthroute
