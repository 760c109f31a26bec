// WorkerPool: order, bounds, deadlines, cancellation and draining, without sleeping.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "engine/tensor/onednn.h"
#include "tests/testing/fakes.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

// Records what happened to it; can be made to hold its worker until it is let go.
class TestTask final : public Task {
 public:
  explicit TestTask(int64_t rows = 1, TimePoint deadline = TimePoint::max())
      : rows_(rows), deadline_(deadline) {}

  int64_t rows() const override { return rows_; }
  TimePoint deadline() const override { return deadline_; }
  bool cancelled() const override { return cancel.load(); }
  void Run(Worker& worker) override {
    one_thread = engine::UsesOneThread();
    worker_index = worker.index;
    started.count_down();
    if (hold) hold->wait();
    if (clock != nullptr) clock->Advance(milliseconds(7));
    ++runs;
    ended.count_down();
  }
  void Drop(const absl::Status& why) override {
    dropped = why;
    started.count_down();
    ended.count_down();
  }

  std::atomic<bool> cancel{false};
  std::unique_ptr<std::latch> hold;  // Run waits for it.
  FakeClock* clock = nullptr;        // Run takes 7 ms of it.
  std::latch started{1}, ended{1};
  int runs = 0;
  int worker_index = -1;
  bool one_thread = false;
  absl::Status dropped;

 private:
  const int64_t rows_;
  const TimePoint deadline_;
};

class WorkerPoolTest : public testing::Test {
 protected:
  std::unique_ptr<WorkerPool> MakePool(int workers, int64_t requests = 100, int64_t rows = 1000) {
    auto pool = WorkerPool::Create(
        {.workers = workers, .max_queued_requests = requests, .max_queued_rows = rows}, clock_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }
  // A task that keeps a worker busy until `Release`.
  TestTask& Occupy(WorkerPool& pool) {
    auto& task = *blockers_.emplace_back(std::make_unique<TestTask>());
    task.hold = std::make_unique<std::latch>(1);
    EXPECT_TRUE(pool.Submit(&task).ok());
    task.started.wait();
    return task;
  }

  FakeClock clock_;
  std::vector<std::unique_ptr<TestTask>> blockers_;
};

TEST_F(WorkerPoolTest, RunsEveryTaskOnceOnAWorkerWithOneOpenMpThread) {
  std::vector<std::unique_ptr<TestTask>> tasks;
  for (int i = 0; i < 100; ++i) tasks.push_back(std::make_unique<TestTask>(3));
  auto pool = MakePool(3);
  for (auto& task : tasks) ASSERT_TRUE(pool->Submit(task.get()).ok());
  pool->Drain();
  for (auto& task : tasks) {
    EXPECT_EQ(task->runs, 1);
    EXPECT_TRUE(task->one_thread);
    EXPECT_GE(task->worker_index, 0);
    EXPECT_LT(task->worker_index, 3);
  }
  const SchedulerStats stats = pool->Stats();
  EXPECT_EQ(stats.queued_requests, 0);
  EXPECT_EQ(stats.queued_rows, 0);
  EXPECT_EQ(stats.busy_workers, 0);
}

TEST_F(WorkerPoolTest, RefusesRequestsBeyondTheLimitAndSaysWhy) {
  auto pool = MakePool(1, /*requests=*/2);
  TestTask& blocker = Occupy(*pool);
  TestTask a, b, c;
  ASSERT_TRUE(pool->Submit(&a).ok());
  ASSERT_TRUE(pool->Submit(&b).ok());
  EXPECT_EQ(pool->Submit(&c), absl::ResourceExhaustedError("queue_full: 2 requests wait, limit 2"));
  EXPECT_EQ(pool->Stats().queued_requests, 2);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(a.runs + b.runs, 2);
  EXPECT_EQ(c.runs, 0);
}

TEST_F(WorkerPoolTest, RefusesRowsBeyondTheLimitAndSaysWhy) {
  auto pool = MakePool(1, 100, /*rows=*/500);
  TestTask& blocker = Occupy(*pool);
  TestTask a(400), b(101), c(100);
  ASSERT_TRUE(pool->Submit(&a).ok());
  EXPECT_EQ(pool->Submit(&b), absl::ResourceExhaustedError(
                                  "queue_full: 400 ads wait and this request has 101, limit 500"));
  ASSERT_TRUE(pool->Submit(&c).ok());
  EXPECT_EQ(pool->Stats().queued_rows, 500);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(pool->Stats().queued_rows, 0);
}

TEST_F(WorkerPoolTest, AnIdleWorkerTakesATaskWhateverTheLimit) {
  TestTask large(1000);  // Outlives the pool: its worker may still be leaving Run.
  auto pool = MakePool(2, 1, /*rows=*/10);
  Occupy(*pool);
  ASSERT_TRUE(pool->Submit(&large).ok());
  large.ended.wait();
  blockers_[0]->hold->count_down();
}

TEST_F(WorkerPoolTest, DoesNotComputeWhatExpiredInTheQueue) {
  auto pool = MakePool(1);
  TestTask& blocker = Occupy(*pool);
  TestTask late(1, clock_.Now() + milliseconds(10)), on_time(1, clock_.Now() + milliseconds(30));
  ASSERT_TRUE(pool->Submit(&late).ok());
  ASSERT_TRUE(pool->Submit(&on_time).ok());
  clock_.Advance(milliseconds(20));
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(late.runs, 0);
  EXPECT_EQ(late.dropped, absl::DeadlineExceededError(
                              "the deadline passed while the request waited for a worker"));
  EXPECT_EQ(on_time.runs, 1);
  EXPECT_EQ(pool->Stats().expired, 1);
}

TEST_F(WorkerPoolTest, DoesNotComputeWhatWasCancelledInTheQueue) {
  auto pool = MakePool(1);
  TestTask& blocker = Occupy(*pool);
  TestTask task;
  ASSERT_TRUE(pool->Submit(&task).ok());
  task.cancel.store(true);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(task.runs, 0);
  EXPECT_EQ(task.dropped, absl::CancelledError("the caller went away"));
  EXPECT_EQ(pool->Stats().cancelled, 1);
}

TEST_F(WorkerPoolTest, RefusesWhatIsTooLateOnArrival) {
  auto pool = MakePool(1);
  TestTask expired(1, clock_.Now());
  EXPECT_EQ(pool->Submit(&expired),
            absl::DeadlineExceededError("the deadline had passed when the call arrived"));
  TestTask cancelled;
  cancelled.cancel.store(true);
  EXPECT_EQ(pool->Submit(&cancelled), absl::CancelledError("the caller went away"));
}

TEST_F(WorkerPoolTest, DrainFinishesWhatWaitsAndRefusesWhatComes) {
  auto pool = MakePool(1);
  TestTask& blocker = Occupy(*pool);
  TestTask waiting;
  ASSERT_TRUE(pool->Submit(&waiting).ok());
  std::thread drainer([&] { pool->Drain(); });
  // Drain begins at some time: until then tasks are taken.
  std::vector<std::unique_ptr<TestTask>> late;
  absl::Status refused;
  do {
    refused = pool->Submit(late.emplace_back(std::make_unique<TestTask>()).get());
    std::this_thread::yield();
  } while (refused.ok() && late.size() < 90);
  blocker.hold->count_down();
  drainer.join();
  EXPECT_EQ(waiting.runs, 1);
  TestTask after;
  EXPECT_EQ(pool->Submit(&after), absl::UnavailableError("draining: the server is shutting down"));
}

TEST_F(WorkerPoolTest, TheDestructorFinishesWhatWaits) {
  TestTask first, second;
  auto pool = MakePool(1);
  ASSERT_TRUE(pool->Submit(&first).ok());
  ASSERT_TRUE(pool->Submit(&second).ok());
  pool.reset();
  EXPECT_EQ(first.runs + second.runs, 2);
}

TEST_F(WorkerPoolTest, CountsBusyTime) {
  auto pool = MakePool(1);
  TestTask task;
  task.clock = &clock_;
  ASSERT_TRUE(pool->Submit(&task).ok());
  pool->Drain();
  EXPECT_EQ(pool->Stats().busy, milliseconds(7));
}

TEST_F(WorkerPoolTest, ManyProducersLoseNothing) {
  constexpr int kProducers = 4, kTasks = 500;
  std::vector<std::unique_ptr<TestTask>> tasks;
  for (int i = 0; i < kProducers * kTasks; ++i) tasks.push_back(std::make_unique<TestTask>());
  auto pool = MakePool(4, kProducers * kTasks, kProducers * kTasks);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kTasks; ++i) {
        TestTask& task = *tasks[p * kTasks + i];
        task.cancel.store(i % 5 == 0);
        const absl::Status status = pool->Submit(&task);
        EXPECT_EQ(status.ok(), i % 5 != 0) << status;
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  pool->Drain();
  int runs = 0;
  for (auto& task : tasks) runs += task->runs;
  EXPECT_EQ(runs, kProducers * kTasks * 4 / 5);
}

TEST(WorkerPoolOptions, AreChecked) {
  const FakeClock clock;
  const auto pool = WorkerPool::Create({.workers = 0}, clock);
  EXPECT_EQ(pool.status(),
            absl::InvalidArgumentError("worker pool: workers 0, max_queued_requests 1000, "
                                       "max_queued_rows 200000, want at least 1 of each"));
}

}  // namespace
}  // namespace ulfd::server
