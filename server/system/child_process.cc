// posix_spawn, whose child shares this process's memory until it has become the program: fork would
// copy the page tables of all models, and hold up whoever touches a page meanwhile.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"

namespace ulfd::server {
namespace {

constexpr size_t kMaxErrorBytes = 16 << 10;
constexpr int kLookMs = 50;
constexpr int kLowestPriority = 19;

absl::Status CannotStart(const std::string& program, int error) {
  return Unavailable(program, ": cannot be run: ", strerror(error));
}

// Starts the program with `errors` as its stderr; 0 or errno.
int Spawn(std::vector<std::string>& argv, int errors, pid_t& pid) {
  std::vector<char*> words;
  words.reserve(argv.size() + 1);
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  sigset_t signals;  // The daemon blocks or ignores some.
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&how, &signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&how, &signals);
  posix_spawnattr_setflags(&how,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid, words[0], &files, &how, words.data(), environ);
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

void Bound(pid_t pid, const ChildBounds& bounds) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(pid), kLowestPriority);
#ifndef ULFD_SANITIZED  // AddressSanitizer reserves terabytes.
  if (bounds.max_memory_bytes > 0) {
    const rlimit memory = {static_cast<rlim_t>(bounds.max_memory_bytes),
                           static_cast<rlim_t>(bounds.max_memory_bytes)};
    prlimit(pid, RLIMIT_AS, &memory, nullptr);
  }
#else
  static_cast<void>(bounds);
#endif
}

// Reads what is there; false: there will be no more.
bool Drain(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t got = read(fd, buffer, sizeof(buffer));
  if (got > 0) {
    const LoadScope::WithoutRefusals for_the_text;  // Nobody would wait for the child.
    const size_t left = kMaxErrorBytes - std::min(text.size(), kMaxErrorBytes);
    text.append(buffer, std::min(static_cast<size_t>(got), left));
  }
  return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(std::vector<std::string> argv, const ChildBounds& bounds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return CannotStart(argv[0], errno);
  pid_t pid = 0;
  const int error = Spawn(argv, ends[1], pid);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return CannotStart(argv[0], error);
  }
  Bound(pid, bounds);
  ChildResult result;
  int status = 0;
  bool stopped = false, open = true;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (!stopped && bounds.stop && bounds.stop()) {
      stopped = true;
      kill(-pid, SIGKILL);  // Its session's.
      kill(pid, SIGKILL);
    }
    pollfd look = {.fd = open ? ends[0] : -1, .events = POLLIN, .revents = 0};
    if (poll(&look, 1, kLookMs) > 0) open = Drain(ends[0], result.errors);
  }
  // Whatever it left running could hold the pipe: only what is there counts.
  pollfd look = {.fd = ends[0], .events = POLLIN, .revents = 0};
  while (open && poll(&look, 1, 0) > 0) open = Drain(ends[0], result.errors);
  close(ends[0]);
  if (stopped) return absl::CancelledError(absl::StrCat(argv[0], ": was stopped"));
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result;
}

}  // namespace ulfd::server
