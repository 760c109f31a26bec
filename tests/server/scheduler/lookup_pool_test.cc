// The lookup pool: who fetches, who goes first, and who gives up in time.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/lookup_pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/scheduler/refusal.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Steady = std::chrono::steady_clock;

// What calls have done, and whether fetches may end.
struct Log {
  Mutex mu;
  CondVar changed;
  bool open = true;
  std::vector<int> fetching, fetched, ended;

  void Await(const std::vector<int>& list, size_t count) {
    MutexLock lock(mu);
    while (list.size() < count) changed.Wait(mu);
  }
  void SetOpen(bool value) {
    MutexLock lock(mu);
    open = value;
    changed.NotifyAll();
  }
};

class Call final : public Lookup {
 public:
  Call(Log& log, int number, TimePoint deadline, std::string client)
      : log_(log), number_(number), deadline_(deadline), client_(std::move(client)) {}
  const std::string& client() const override { return client_; }
  TimePoint fetch_deadline() const override { return deadline_; }
  void FetchRows() override {
    MutexLock lock(log_.mu);
    log_.fetching.push_back(number_);
    log_.changed.NotifyAll();
    while (!log_.open) log_.changed.Wait(log_.mu);
    log_.fetched.push_back(number_);
  }
  void RowsEnded() override {
    MutexLock lock(log_.mu);
    log_.ended.push_back(number_);
    log_.changed.NotifyAll();
  }

 private:
  Log& log_;
  const int number_;
  const TimePoint deadline_;
  const std::string client_;
};

class LookupPoolTest : public ::testing::Test {
 protected:
  Call* Make(int number, std::chrono::nanoseconds within, std::string client = "somebody") {
    calls_.push_back(
        std::make_unique<Call>(log_, number, Steady::now() + within, std::move(client)));
    return calls_.back().get();
  }

  Log log_;
  std::deque<std::unique_ptr<Call>> calls_;
};

TEST_F(LookupPoolTest, FetchesAndGoesOn) {
  LookupPool pool(2, 100);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(pool.Submit(Make(i, seconds(60))).ok());
  log_.Await(log_.ended, 50);
  MutexLock lock(log_.mu);
  EXPECT_EQ(log_.fetched.size(), 50u);
}

TEST_F(LookupPoolTest, WhoHasTheLeastTimeGoesFirst) {
  LookupPool pool(1, 100);
  log_.SetOpen(false);
  ASSERT_TRUE(pool.Submit(Make(0, seconds(60))).ok());
  log_.Await(log_.fetching, 1);
  ASSERT_TRUE(pool.Submit(Make(1, seconds(90))).ok());
  ASSERT_TRUE(pool.Submit(Make(2, seconds(70))).ok());
  ASSERT_TRUE(pool.Submit(Make(3, seconds(80))).ok());
  EXPECT_EQ(pool.waiting(), 3);
  log_.SetOpen(true);
  log_.Await(log_.ended, 4);
  MutexLock lock(log_.mu);
  EXPECT_EQ(log_.fetched, (std::vector<int>{0, 2, 3, 1}));
}

TEST_F(LookupPoolTest, NobodyWaitsLongerThanItsTime) {
  LookupPool pool(1, 100);
  log_.SetOpen(false);
  ASSERT_TRUE(pool.Submit(Make(0, seconds(60))).ok());
  log_.Await(log_.fetching, 1);
  ASSERT_TRUE(pool.Submit(Make(1, milliseconds(30))).ok());
  ASSERT_TRUE(pool.Submit(Make(2, milliseconds(5))).ok());
  log_.Await(log_.ended, 2);  // Though the one thread is kept.
  {
    MutexLock lock(log_.mu);
    EXPECT_EQ(std::set<int>(log_.ended.begin(), log_.ended.end()), (std::set<int>{1, 2}));
    EXPECT_TRUE(log_.fetched.empty());
  }
  log_.SetOpen(true);
  log_.Await(log_.ended, 3);
}

TEST_F(LookupPoolTest, RefusesMoreThanMayWait) {
  LookupPool pool(1, 2);
  log_.SetOpen(false);
  ASSERT_TRUE(pool.Submit(Make(0, seconds(60))).ok());
  log_.Await(log_.fetching, 1);
  ASSERT_TRUE(pool.Submit(Make(1, seconds(60))).ok());
  ASSERT_TRUE(pool.Submit(Make(2, seconds(60))).ok());
  const absl::Status refused = pool.Submit(Make(3, seconds(60)));
  EXPECT_EQ(ReasonOf(refused), ShedReason::kQueueFull) << refused;
  log_.SetOpen(true);
  log_.Await(log_.ended, 3);
}

TEST_F(LookupPoolTest, OneClientLeavesRoomToOthers) {
  LookupPool pool(1, 100);
  log_.SetOpen(false);
  ASSERT_TRUE(pool.Submit(Make(0, seconds(60), "many")).ok());
  log_.Await(log_.fetching, 1);
  int taken = 0;
  absl::Status refused;
  while (taken < 200 && refused.ok()) {
    refused = pool.Submit(Make(1, seconds(60), "many"));
    taken += refused.ok();
  }
  EXPECT_EQ(taken, 89);  // Eight times the 11 that are left.
  EXPECT_EQ(ReasonOf(refused), ShedReason::kQueueFull) << refused;
  int others = 0;
  for (int i = 0; i < 9; ++i) others += pool.Submit(Make(2, seconds(60), "few")).ok();
  EXPECT_EQ(others, 9);
  log_.SetOpen(true);
  log_.Await(log_.ended, static_cast<size_t>(1 + taken + others));
}

TEST_F(LookupPoolTest, ClientsTakeTurns) {
  LookupPool pool(1, 100);
  log_.SetOpen(false);
  ASSERT_TRUE(pool.Submit(Make(0, seconds(60), "many")).ok());
  log_.Await(log_.fetching, 1);
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(pool.Submit(Make(i, seconds(60 + i), "many")).ok());
  ASSERT_TRUE(pool.Submit(Make(5, seconds(90), "few")).ok());
  ASSERT_TRUE(pool.Submit(Make(6, seconds(80), "few")).ok());
  log_.SetOpen(true);
  log_.Await(log_.ended, 7);
  MutexLock lock(log_.mu);
  EXPECT_EQ(log_.fetched, (std::vector<int>{0, 1, 6, 2, 5, 3, 4}));
}

TEST_F(LookupPoolTest, EndsWhatWaitsWhenItGoes) {
  auto pool = std::make_unique<LookupPool>(1, 10);
  log_.SetOpen(false);
  ASSERT_TRUE(pool->Submit(Make(0, seconds(60))).ok());
  log_.Await(log_.fetching, 1);
  ASSERT_TRUE(pool->Submit(Make(1, seconds(60))).ok());
  std::thread opener([&] {
    log_.Await(log_.ended, 1);
    log_.SetOpen(true);
  });
  pool = nullptr;
  opener.join();
  MutexLock lock(log_.mu);
  EXPECT_EQ(log_.ended.size(), 2u);
}

TEST_F(LookupPoolTest, ReportsNowAndThen) {
  LookupPool pool(1, 1);
  const TimePoint begin = Steady::now();
  EXPECT_TRUE(pool.MayReport(begin));
  EXPECT_FALSE(pool.MayReport(begin + seconds(1)));
  EXPECT_TRUE(pool.MayReport(begin + seconds(5)));
}

}  // namespace
}  // namespace ulfd::server
