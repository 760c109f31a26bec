// What the calling thread took of a CPU, and how often it gave one up.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_THREAD_USE_H_
#define ULFD_TESTS_TESTING_THREAD_USE_H_

#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdint>

namespace ulfd {

struct ThreadUse {
  std::chrono::nanoseconds cpu{};
  int64_t sleeps = 0;  // Times it gave up the CPU of its own accord.

  // Since the thread began.
  static ThreadUse Now() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return {std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec),
            usage.ru_nvcsw};
  }
  // While it calls `step` again and again, until it has taken that much of a CPU.
  template <typename Step>
  static ThreadUse Of(std::chrono::nanoseconds cpu, const Step& step) {
    const ThreadUse before = Now();
    ThreadUse used;
    do {
      step();
      const ThreadUse now = Now();
      used = {now.cpu - before.cpu, now.sleeps - before.sleeps};
    } while (used.cpu < cpu);
    return used;
  }
};

}  // namespace ulfd

#endif  // ULFD_TESTS_TESTING_THREAD_USE_H_
