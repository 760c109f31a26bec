// Pacer: sleeps in proportion to what was computed.  Bounds hold however busy the machine is: a
// sleep is never too short.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/pacer.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/testing/thread_use.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(PacerTest, LeavesTheRestOfTheTime) {
  Pacer pacer(0.25);
  const steady_clock::time_point begin = steady_clock::now();
  const ThreadUse used = ThreadUse::Of(milliseconds(20), [&] { pacer.Pace(); });
  // What was computed since the last pause has not been slept for yet.
  EXPECT_GE(steady_clock::now() - begin, 4 * (used.cpu - milliseconds(2)));
}

TEST(PacerTest, DoesNotSleepForNothing) {
  Pacer pacer(0.01);
  const int64_t sleeps = ThreadUse::Now().sleeps;
  for (int i = 0; i < 10; ++i) pacer.Pace();
  EXPECT_EQ(ThreadUse::Now().sleeps, sleeps);
}

TEST(PacerTest, DoesNotSleepWithTheWholeShare) {
  Pacer pacer(1);
  EXPECT_EQ(ThreadUse::Of(milliseconds(5), [&] { pacer.Pace(); }).sleeps, 0);
}

}  // namespace
}  // namespace ulfd::server
