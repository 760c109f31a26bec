// Pacer: sleeps in proportion to what was computed.  Bounds hold however busy the machine is: a sleep is never too short.
// SPDX-License-Identifier: Apache-2.0
#include "server/pacer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

nanoseconds CpuTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

// How often this thread gave up the CPU of its own accord.
int64_t Sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

TEST(PacerTest, LeavesTheRestOfTheTime) {
  Pacer pacer(0.25);
  const steady_clock::time_point begin = steady_clock::now();
  const nanoseconds cpu = CpuTime();
  while (CpuTime() - cpu < milliseconds(20)) pacer.Pace();
  const nanoseconds used = CpuTime() - cpu;
  // What was computed since the last pause has not been slept for yet.
  EXPECT_GE(steady_clock::now() - begin, 4 * (used - milliseconds(2)));
}

TEST(PacerTest, DoesNotSleepForNothing) {
  Pacer pacer(0.01);
  const int64_t sleeps = Sleeps();
  for (int i = 0; i < 10; ++i) pacer.Pace();
  EXPECT_EQ(Sleeps(), sleeps);
}

TEST(PacerTest, DoesNotSleepWithTheWholeShare) {
  Pacer pacer(1);
  const int64_t sleeps = Sleeps();
  const nanoseconds cpu = CpuTime();
  while (CpuTime() - cpu < milliseconds(5)) pacer.Pace();
  EXPECT_EQ(Sleeps(), sleeps);
}

TEST(PacerTest, AsAStopItGoesOn) {
  const Pacer pacer(0.5);
  EXPECT_FALSE(pacer.stop()());
}

}  // namespace
}  // namespace ulfd::server
