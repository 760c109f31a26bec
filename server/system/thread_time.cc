// SPDX-License-Identifier: Apache-2.0
#include "server/system/thread_time.h"

#include <pthread.h>
#include <time.h>

namespace ulfd::server {
namespace {

std::chrono::nanoseconds Read(clockid_t clock) {
  timespec used{};
  if (clock_gettime(clock, &used) != 0) return {};
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

std::chrono::nanoseconds CpuTimeOfThisThread() { return Read(CLOCK_THREAD_CPUTIME_ID); }

std::chrono::nanoseconds CpuTimeOf(std::thread& thread) {
  clockid_t clock{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return {};
  return Read(clock);
}

}  // namespace ulfd::server
