// ulfd: the daemon.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/stubs/logging.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/errors.h"
#include "server/config/options.h"
#include "server/daemon.h"
#include "server/observe/logging.h"
#include "server/system/threads.h"

// Read by jemalloc before anything runs.  What reloads free goes back to the system within seconds,
// given back by a thread of jemalloc's own rather than by whoever allocates next, addresses and
// all: an arena that keeps those of one dear load leaves none to the others where they are limited.
// MALLOC_CONF in the environment overrides it.
extern "C" {
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): jemalloc's own declaration.
const char* malloc_conf =
    "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,retain:false";
}

namespace {

using std::chrono::milliseconds;

int Fail(const absl::Status& status, int code) {
  constexpr size_t kMaxBytes = 16384;  // Flags and the configuration have a say in it.
  const std::string text = ulfd::PrintableLines(ulfd::Beginning(status.message(), kMaxBytes));
  std::fprintf(stderr, "ulfd: %s\n", text.c_str());
  if (code == 2) std::fprintf(stderr, "ulfd: --help lists the flags\n");
  return code;
}

// Waits for one of `signals`, at most that long (nullopt: for ever); 0: none came.
int WaitForSignal(const sigset_t& signals, std::optional<milliseconds> at_most) {
  int signal = 0;
  if (at_most.has_value()) {
    const timespec timeout{.tv_sec = at_most->count() / 1000,
                           .tv_nsec = (at_most->count() % 1000) * 1000000};
    signal = sigtimedwait(&signals, nullptr, &timeout);
  } else if (sigwait(&signals, &signal) != 0) {
    return 0;
  }
  return signal > 0 ? signal : 0;
}

// What a start lacks besides what it checks, it says without unwinding: threads may run already.
[[noreturn]] void CannotStart() {
  std::fputs("ulfd: cannot start: the system refuses memory or a thread\n", stderr);
  std::_Exit(1);
}

int Serve(const ulfd::server::Options& options, const sigset_t& signals) {
  const std::terminate_handler before = std::set_terminate(CannotStart);
  auto daemon = ulfd::server::Daemon::Create(options);
  std::set_terminate(before);
  if (!daemon.ok()) return Fail(daemon.status(), 1);
  while (true) {
    const int signal = WaitForSignal(signals, (*daemon)->config_interval());
    if (signal != 0 && signal != SIGHUP) break;
    if (signal == SIGHUP) {
      (*daemon)->Reload();
    } else {
      (*daemon)->LookAtConfig();
    }
  }
  sigset_t enders = signals;
  sigdelset(&enders, SIGHUP);
  const auto gone_by =
      (*daemon)->Drain([&](milliseconds t) { return WaitForSignal(enders, t) != 0; });
  const auto late = [&] {
    std::this_thread::sleep_for(milliseconds(5));
    return std::chrono::steady_clock::now() > *gone_by;
  };
  if (gone_by.has_value() && ulfd::server::EndsUnless([&] { daemon->reset(); }, late)) return 0;
  // Some thread does not come back.  Nothing that it holds is wanted any more.
  ulfd::server::Logger(*ulfd::server::ParseLogLevel(options.settings.logging().level()),
                       *ulfd::server::ParseLogFormat(options.settings.logging().format()))
      .Info("ending without waiting for what is still at work");
  std::_Exit(0);
}

// Every connection and every file of a model is a descriptor, and shells often allow 1024 only.
void AllowFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
  // Before there is any other thread, so that all inherit it: signals wait for sigwait.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A caller that went away, or a file at its limit, is an error of one write, not our end.
  for (int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);

  AllowFiles();
  // Whatever callers send must not be a line on standard error each time, as text that is not UTF-8
  // would be.
  google::protobuf::SetLogHandler(nullptr);
  // Debian builds Abseil with its search for deadlocks on: every lock that gRPC takes would pass
  // through a graph of all locks, which has a lock of its own.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);

  const auto flags = ulfd::server::ParseFlags(std::vector<std::string>(argv + 1, argv + argc));
  const auto printed = [] {
    if (std::fflush(stdout) == 0) return 0;
    return Fail(ulfd::Unavailable("cannot write standard output"), 1);
  };
  if (ulfd::IsHelpPrinted(flags.status())) return printed();
  if (!flags.ok()) return Fail(flags.status(), 2);
  if (flags->version) {
    const ulfd::server::BuildFacts build = ulfd::server::ThisBuild();
    std::printf("ulfd %s (%s)\n", build.version.c_str(), build.build.c_str());
    return printed();
  }
  const auto options = ulfd::server::LoadOptions(*flags);
  if (!options.ok()) return Fail(options.status(), 1);
  if (flags->check_config) {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // Ctrl-C ends it.
    std::vector<std::string> notices;
    const absl::Status checked = ulfd::server::CheckRepository(*options, notices);
    for (const std::string& notice : notices) {
      std::fprintf(stderr, "ulfd: notice: %s\n", notice.c_str());
    }
    if (!checked.ok()) return Fail(checked, 1);
    std::printf("ulfd: the configuration is good\n");
    return printed();
  }
  return Serve(*options, signals);
}
