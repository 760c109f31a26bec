// SPDX-License-Identifier: Apache-2.0
#include "server/system/threads.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <system_error>

namespace ulfd::server {
namespace {

std::chrono::nanoseconds Read(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

void MakeBackgroundThread(const char* name) {
  // On Linux both calls act on one thread, whatever POSIX says of processes.
  const pid_t thread = static_cast<pid_t>(syscall(SYS_gettid));
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread), 10);
  // glibc has no wrapper: IOPRIO_WHO_PROCESS is 1, the class stands above 13 bits of level.
  constexpr int kWhoProcess = 1, kClassBestEffort = 2, kLowestLevel = 7;
  syscall(SYS_ioprio_set, kWhoProcess, thread, (kClassBestEffort << 13) | kLowestLevel);
  pthread_setname_np(pthread_self(), name);
}

bool EndsUnless(const std::function<void()>& work, const std::function<bool()>& give_up) {
  const auto done = std::make_shared<std::atomic<bool>>(false);
  try {
    std::thread([done, work] {
      work();
      done->store(true);
    }).detach();
  } catch (const std::system_error&) {
    work();
    return true;
  }
  while (!done->load()) {
    if (give_up()) return done->load();
  }
  return true;
}

std::chrono::nanoseconds CpuTimeOfThisThread() { return Read(CLOCK_THREAD_CPUTIME_ID); }

std::chrono::nanoseconds CpuTimeOf(std::thread& thread) {
  clockid_t clock{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return {};
  return Read(clock);
}

}  // namespace ulfd::server
