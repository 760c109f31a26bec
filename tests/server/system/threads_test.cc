// SPDX-License-Identifier: Apache-2.0
#include "server/system/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

namespace ulfd::server {
namespace {

TEST(EndsUnlessTest, WaitsForTheWork) {
  std::atomic<bool> worked{false};
  EXPECT_TRUE(EndsUnless([&] { worked.store(true); }, [] { return false; }));
  EXPECT_TRUE(worked.load());
}

TEST(EndsUnlessTest, WorkGoesOnOnceItIsGivenUp) {
  const auto may_end = std::make_shared<std::atomic<bool>>(false);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto work = [may_end, ended] {
    while (!may_end->load()) std::this_thread::yield();
    ended->store(true);
  };
  int asked = 0;
  EXPECT_FALSE(EndsUnless(work, [&] { return ++asked == 3; }));
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(ended->load());
  may_end->store(true);
  while (!ended->load()) std::this_thread::yield();
}

}  // namespace
}  // namespace ulfd::server
