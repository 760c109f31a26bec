// SPDX-License-Identifier: Apache-2.0
#include "server/system/thread_priority.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ulfd::server {

void MakeBackgroundThread(const char* name) {
  // On Linux both calls act on one thread, whatever POSIX says of processes.
  const pid_t thread = static_cast<pid_t>(syscall(SYS_gettid));
  setpriority(PRIO_PROCESS, static_cast<id_t>(thread), 10);
  // glibc has no wrapper: IOPRIO_WHO_PROCESS is 1, the class stands above 13 bits of level.
  constexpr int kWhoProcess = 1, kClassBestEffort = 2, kLowestLevel = 7;
  syscall(SYS_ioprio_set, kWhoProcess, thread, (kClassBestEffort << 13) | kLowestLevel);
  pthread_setname_np(pthread_self(), name);
}

}  // namespace ulfd::server
