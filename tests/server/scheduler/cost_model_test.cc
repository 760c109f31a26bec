// CostModel: learns the parts of a cost, forgets, and never predicts less than nothing.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/cost_model.h"

#include <gtest/gtest.h>

#include <random>

namespace ulfd::server {
namespace {

using std::chrono::nanoseconds;

nanoseconds Truth(int64_t users, int64_t rows) {
  return nanoseconds(40'000 + 15'000 * users + 21'000 * rows);
}

TEST(CostModel, LearnsBaseUsersAndRows) {
  CostModel model;
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const int64_t users = 1 + static_cast<int64_t>(random() % 8);
    const int64_t rows = 1 + static_cast<int64_t>(random() % 500);
    model.Observe(users, rows, Truth(users, rows));
  }
  for (int64_t rows : {1, 50, 2000}) {
    EXPECT_NEAR(model.Predict(1, rows).count(), Truth(1, rows).count(),
                0.02 * Truth(1, rows).count());
  }
  EXPECT_NEAR(model.parts().user_ns, 15'000, 3'000);
}

TEST(CostModel, PredictsRequestsOfOneSizeFromTheirLikes) {
  CostModel model;
  for (int i = 0; i < 50; ++i) model.Observe(1, 200, nanoseconds(4'000'000));
  EXPECT_NEAR(model.Predict(1, 200).count(), 4e6, 0.1e6);
}

TEST(CostModel, FollowsAMachineThatBecomesSlower) {
  CostModel model;
  for (int i = 0; i < 500; ++i)
    model.Observe(1, 100 + i % 50, nanoseconds((100 + i % 50) * 10'000));
  for (int i = 0; i < 2000; ++i)
    model.Observe(1, 100 + i % 50, nanoseconds((100 + i % 50) * 30'000));
  EXPECT_NEAR(model.Predict(1, 120).count(), 120 * 30'000, 0.05 * 120 * 30'000);
}

TEST(CostModel, OneRunThatLostItsCoreChangesLittle) {
  CostModel model;
  for (int i = 0; i < 100; ++i) model.Observe(1, 50 + i, nanoseconds((50 + i) * 10'000));
  model.Observe(1, 100, nanoseconds(500'000'000));
  EXPECT_NEAR(model.Predict(1, 100).count(), 1e6, 0.2e6);
  // But what is really slower is believed after a few runs.
  for (int i = 0; i < 40; ++i) model.Observe(1, 50 + 5 * i, nanoseconds((50 + 5 * i) * 1'000'000));
  EXPECT_GT(model.Predict(1, 100).count(), 5e6);
}

TEST(CostModel, BeginsWithTheGuess) {
  const CostModel model({.base_ns = 1000, .user_ns = 200, .row_ns = 30});
  EXPECT_EQ(model.Predict(2, 10), nanoseconds(1700));
}

TEST(CostModel, NeverPredictsLessThanNothing) {
  CostModel model;
  // Fewer rows that took longer: a straight line through them would have a negative slope.
  for (int i = 0; i < 100; ++i) {
    model.Observe(1, 10, nanoseconds(900'000));
    model.Observe(1, 1000, nanoseconds(100'000));
  }
  const CostModel::Parts parts = model.parts();
  EXPECT_GE(parts.base_ns, 0);
  EXPECT_GE(parts.user_ns, 0);
  EXPECT_GE(parts.row_ns, 0);
  EXPECT_GE(model.Predict(1, 2000).count(), 0);
  model.Observe(1, 10, nanoseconds(-5));  // A clock that jumped back.
  EXPECT_GE(model.Predict(1, 10).count(), 0);
}

}  // namespace
}  // namespace ulfd::server
