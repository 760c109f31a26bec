// Work done aside: in order, one at a time, until the end.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/background_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace ulfd::server {
namespace {

TEST(BackgroundQueueTest, RunsInOrderOnOneThread) {
  Mutex mu;
  CondVar changed;
  std::vector<int> ran;
  std::thread::id thread;
  bool one_thread = true;
  BackgroundQueue queue("test");
  for (int i = 0; i < 100; ++i) {
    queue.Add([&, i] {
      MutexLock lock(mu);
      if (i == 0) thread = std::this_thread::get_id();
      one_thread &= thread == std::this_thread::get_id();
      ran.push_back(i);
      changed.NotifyAll();
    });
  }
  MutexLock lock(mu);
  while (ran.size() < 100) changed.Wait(mu);
  EXPECT_TRUE(std::is_sorted(ran.begin(), ran.end()));
  EXPECT_TRUE(one_thread);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(BackgroundQueueTest, TheEndWakesWhatSleepsAndForgetsWhatWaits) {
  std::atomic<bool> began{false}, went_on{true}, ran{false};
  {
    BackgroundQueue queue("test");
    queue.Add([&] {
      began.store(true);
      went_on.store(queue.SleepFor(std::chrono::hours(1)));
    });
    queue.Add([&] { ran.store(true); });
    while (!began.load()) std::this_thread::yield();
  }
  EXPECT_FALSE(went_on.load());
  EXPECT_FALSE(ran.load());
}

TEST(BackgroundQueueTest, SleepsToTheEndOfTheTime) {
  BackgroundQueue queue("test");
  EXPECT_TRUE(queue.SleepFor(std::chrono::microseconds(1)));
  EXPECT_FALSE(queue.stopping());
}

}  // namespace
}  // namespace ulfd::server
