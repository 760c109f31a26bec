// WorkerPool: order, bounds, deadlines, cancellation and draining, without sleeping.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/tensor/onednn.h"
#include "tests/testing/fakes.h"

namespace ulfd::server {
namespace {

using std::chrono::milliseconds;

// Records what happened to it; can be made to hold its worker until it is let go.
class TestJob final : public Job {
 public:
  TestJob(std::shared_ptr<Lane> lane, int64_t rows, TimePoint deadline = TimePoint::max())
      : lane_(std::move(lane)), rows_(rows), deadline_(deadline) {}

  const std::shared_ptr<Lane>& lane() const override { return lane_; }
  const std::string& client() const override { return client_; }
  int64_t rows() const override { return rows_; }
  TimePoint deadline() const override { return deadline_; }
  bool divisible() const override { return divide; }
  bool cancelled() const override { return cancel.load(); }
  void RunTogether(Worker& worker, absl::Span<Job* const> jobs) override {
    for (Job* job : jobs) static_cast<TestJob*>(job)->Compute(worker, jobs.size());
  }
  int64_t held_bytes() const override { return 0; }
  bool Begin(Worker&) override {
    started.count_down();
    if (hold) hold->wait();
    begun = true;
    return true;
  }
  void RunRows(Worker&, int64_t begin, int64_t end) override {
    if (clock != nullptr) clock->Advance(milliseconds(7));
    computed += end - begin;
    if (cancel_after_first) cancel.store(true);
    for (int64_t row = begin; row < end; ++row) ++times[row];
  }
  void End(Worker&) override {
    ++runs;
    ended.count_down();
  }
  void Drop(const absl::Status& why) override {
    dropped = why;
    if (!begun) started.count_down();
    ended.count_down();
  }

  std::atomic<bool> cancel{false};
  bool divide = false;
  bool cancel_after_first = false;   // The caller leaves while the first rows are computed.
  std::unique_ptr<std::latch> hold;  // Computing waits for it.
  FakeClock* clock = nullptr;        // Computing takes 7 ms of it.
  std::latch started{1}, ended{1};
  int runs = 0;
  bool begun = false;
  size_t together = 0;               // Jobs in its batch.
  std::atomic<int64_t> computed{0};  // Rows.
  std::array<std::atomic<int>, 2000> times{};
  int worker_index = -1;
  std::thread::id thread;
  bool one_thread = false;
  absl::Status dropped;

 private:
  void Compute(Worker& worker, size_t jobs) {
    one_thread = engine::UsesOneThread();
    worker_index = worker.index;
    thread = std::this_thread::get_id();
    together = jobs;
    started.count_down();
    if (hold) hold->wait();
    if (clock != nullptr) clock->Advance(milliseconds(7));
    ++runs;
    computed += rows_;
    ended.count_down();
  }

  const std::string client_ = "a";
  const std::shared_ptr<Lane> lane_;
  const int64_t rows_;
  const TimePoint deadline_;
};

// A lane whose rows cost 10 us, or nothing at all.
std::shared_ptr<Lane> MakeLane(double row_ns = 10e3) {
  return std::make_shared<Lane>("din", Lane::Limits{}, CostModel::Parts{.row_ns = row_ns});
}

class WorkerPoolTest : public testing::Test {
 protected:
  std::unique_ptr<WorkerPool> MakePool(int workers, int64_t requests = 200, int64_t rows = 1000,
                                       std::chrono::nanoseconds at_once = {}) {
    auto pool = WorkerPool::Create(
        {.queue = {.workers = workers, .max_queued_requests = requests, .max_queued_rows = rows},
         .at_once = at_once,
         .on_batch = [this](int, int64_t jobs,
                            int64_t) { largest_batch_ = std::max(jobs, +largest_batch_); }},
        clock_);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }
  std::unique_ptr<TestJob> Make(int64_t rows = 1, TimePoint deadline = TimePoint::max()) {
    return std::make_unique<TestJob>(lane_, rows, deadline);
  }
  // A job that keeps a worker busy until `hold` is counted down.
  TestJob& Occupy(WorkerPool& pool, int64_t rows = 1) {
    auto& task = *blockers_.emplace_back(Make(rows));
    task.hold = std::make_unique<std::latch>(1);
    EXPECT_TRUE(pool.Submit(&task).ok());
    task.started.wait();
    return task;
  }

  FakeClock clock_;
  const std::shared_ptr<Lane> lane_ = MakeLane();
  std::atomic<int64_t> largest_batch_{0};
  std::vector<std::unique_ptr<TestJob>> blockers_;
};

TEST_F(WorkerPoolTest, RunsEveryTaskOnceOnAWorkerWithOneOpenMpThread) {
  std::vector<std::unique_ptr<TestJob>> tasks;
  for (int i = 0; i < 100; ++i) tasks.push_back(Make(3));
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
  TestJob& blocker = Occupy(*pool);
  TestJob a(lane_, 1);
  TestJob b(lane_, 1);
  TestJob c(lane_, 1);
  ASSERT_TRUE(pool->Submit(&a).ok());
  ASSERT_TRUE(pool->Submit(&b).ok());
  EXPECT_EQ(pool->Submit(&c).message(), "queue_full: 2 requests wait, 2 of this client, limit 2");
  EXPECT_EQ(pool->Stats().queued_requests, 2);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(a.runs + b.runs, 2);
  EXPECT_EQ(c.runs, 0);
}

TEST_F(WorkerPoolTest, RefusesRowsBeyondTheLimitAndSaysWhy) {
  auto pool = MakePool(1, 100, /*rows=*/500);
  TestJob& blocker = Occupy(*pool);
  TestJob a(lane_, 400);
  TestJob b(lane_, 101);
  TestJob c(lane_, 40);
  ASSERT_TRUE(pool->Submit(&a).ok());
  EXPECT_EQ(pool->Submit(&b).message(),
            "queue_full: 400 ads wait, 400 of this client, and this request has 101, limit 500");
  ASSERT_TRUE(pool->Submit(&c).ok());
  EXPECT_EQ(pool->Stats().queued_rows, 440);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(pool->Stats().queued_rows, 0);
}

TEST_F(WorkerPoolTest, DoesNotComputeWhatExpiredInTheQueue) {
  auto pool = MakePool(1);
  TestJob& blocker = Occupy(*pool);
  TestJob late(lane_, 1, clock_.Now() + milliseconds(10));
  TestJob on_time(lane_, 1, clock_.Now() + milliseconds(30));
  ASSERT_TRUE(pool->Submit(&late).ok());
  ASSERT_TRUE(pool->Submit(&on_time).ok());
  clock_.Advance(milliseconds(20));
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(late.runs, 0);
  EXPECT_EQ(late.dropped, absl::DeadlineExceededError(
                              "the deadline passed while the request waited for a worker"));
  EXPECT_EQ(on_time.runs, 1);
}

TEST_F(WorkerPoolTest, DoesNotComputeWhatWasCancelledInTheQueue) {
  auto pool = MakePool(1);
  TestJob& blocker = Occupy(*pool);
  TestJob task(lane_, 1);
  ASSERT_TRUE(pool->Submit(&task).ok());
  task.cancel.store(true);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(task.runs, 0);
  EXPECT_EQ(task.dropped, absl::CancelledError("the caller went away"));
}

TEST_F(WorkerPoolTest, RefusesWhatIsTooLateOnArrival) {
  auto pool = MakePool(1);
  TestJob expired(lane_, 1, clock_.Now());
  EXPECT_EQ(pool->Submit(&expired),
            absl::DeadlineExceededError("the deadline had passed when the call arrived"));
  TestJob cancelled(lane_, 1);
  cancelled.cancel.store(true);
  EXPECT_EQ(pool->Submit(&cancelled), absl::CancelledError("the caller went away"));
}

TEST_F(WorkerPoolTest, DrainFinishesWhatWaitsAndRefusesWhatComes) {
  auto pool = MakePool(1);
  TestJob& blocker = Occupy(*pool);
  TestJob waiting(lane_, 1);
  ASSERT_TRUE(pool->Submit(&waiting).ok());
  std::thread drainer([&] { pool->Drain(); });
  // Drain begins at some time: until then tasks are taken.
  std::vector<std::unique_ptr<TestJob>> late;
  absl::Status refused;
  do {
    refused = pool->Submit(late.emplace_back(Make()).get());
    std::this_thread::yield();
  } while (refused.ok() && late.size() < 90);
  blocker.hold->count_down();
  drainer.join();
  EXPECT_EQ(waiting.runs, 1);
  TestJob after(lane_, 1);
  EXPECT_EQ(pool->Submit(&after), absl::UnavailableError("draining: the server is shutting down"));
}

TEST_F(WorkerPoolTest, TheDestructorFinishesWhatWaits) {
  TestJob first(lane_, 1);
  TestJob second(lane_, 1);
  auto pool = MakePool(1);
  ASSERT_TRUE(pool->Submit(&first).ok());
  ASSERT_TRUE(pool->Submit(&second).ok());
  pool.reset();
  EXPECT_EQ(first.runs + second.runs, 2);
}

TEST_F(WorkerPoolTest, CountsBusyTime) {
  auto pool = MakePool(1);
  TestJob task(lane_, 1);
  task.clock = &clock_;
  ASSERT_TRUE(pool->Submit(&task).ok());
  pool->Drain();
  EXPECT_EQ(pool->Stats().busy, milliseconds(7));
}

TEST_F(WorkerPoolTest, ManyProducersLoseNothing) {
  constexpr int kProducers = 4, kTasks = 500;
  std::vector<std::unique_ptr<TestJob>> tasks;
  for (int i = 0; i < kProducers * kTasks; ++i) tasks.push_back(Make());
  auto pool = MakePool(4, kProducers * kTasks, kProducers * kTasks);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kTasks; ++i) {
        TestJob& task = *tasks[p * kTasks + i];
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

TEST_F(WorkerPoolTest, ComputesEveryRowOfALargeJobOnce) {
  for (const int workers : {1, 4}) {
    TestJob job(lane_, 2000);
    job.divide = true;
    auto pool = MakePool(workers, 100, 2000);
    ASSERT_TRUE(pool->Submit(&job).ok());
    pool->Drain();
    EXPECT_EQ(job.runs, 1);
    EXPECT_EQ(job.computed, 2000);
    for (const std::atomic<int>& times : job.times) ASSERT_EQ(times, 1);
    EXPECT_GE(pool->Stats().batches, 10);
    EXPECT_EQ(pool->Stats().rows, 2000);
  }
}

TEST_F(WorkerPoolTest, ComputesNoMoreRowsOnceTheCallerLeft) {
  TestJob job(lane_, 2000);
  job.divide = job.cancel_after_first = true;
  auto pool = MakePool(1, 100, 2000);
  ASSERT_TRUE(pool->Submit(&job).ok());
  pool->Drain();
  EXPECT_EQ(job.runs, 0);
  EXPECT_EQ(job.dropped, absl::CancelledError("the caller went away"));
  EXPECT_LE(job.computed, 100);  // One tile.
  EXPECT_EQ(pool->Stats().rows, job.computed);
}

TEST_F(WorkerPoolTest, ComputesNoMoreRowsOnceTheDeadlinePassed) {
  TestJob job(lane_, 2000, clock_.Now() + milliseconds(21));
  job.divide = true;
  job.clock = &clock_;  // 7 ms per tile.
  auto pool = MakePool(1, 100, 2000);
  ASSERT_TRUE(pool->Submit(&job).ok());
  pool->Drain();
  EXPECT_EQ(job.dropped,
            absl::DeadlineExceededError("the deadline passed while the request was computed"));
  EXPECT_LE(job.computed, 300);
  EXPECT_GE(job.computed, 200);
}

TEST_F(WorkerPoolTest, MergesWhatWaits) {
  auto pool = MakePool(1);
  TestJob& blocker = Occupy(*pool);
  std::vector<std::unique_ptr<TestJob>> jobs;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(pool->Submit(jobs.emplace_back(Make(10)).get()).ok());
  }
  blocker.hold->count_down();
  pool->Drain();
  for (const auto& job : jobs) EXPECT_EQ(job->together, 8u);
  EXPECT_EQ(largest_batch_, 8);
}

// With a pool that computes jobs of one row, 10 us, where they are submitted.
class AtOnceTest : public WorkerPoolTest {
 protected:
  std::unique_ptr<WorkerPool> MakeAtOncePool(int workers) {
    return MakePool(workers, 1000, 1000, std::chrono::microseconds(15));
  }
};

TEST_F(AtOnceTest, ACheapJobIsComputedWhereItIsSubmitted) {
  auto pool = MakeAtOncePool(1);
  for (int i = 0; i < 3; ++i) {
    TestJob job(lane_, 1);
    job.clock = &clock_;
    ASSERT_TRUE(pool->Submit(&job).ok());
    EXPECT_EQ(job.runs, 1);
    EXPECT_EQ(job.thread, std::this_thread::get_id());
    EXPECT_TRUE(job.one_thread);
    EXPECT_EQ(job.worker_index, 0);
  }
  EXPECT_EQ(largest_batch_, 1);
  const SchedulerStats stats = pool->Stats();
  EXPECT_EQ(stats.at_once, 3);
  EXPECT_EQ(stats.batches, 3);
  EXPECT_EQ(stats.rows, 3);
  EXPECT_EQ(stats.busy, milliseconds(21));
  EXPECT_EQ(stats.busy_workers, 0);
  EXPECT_EQ(stats.queued_requests, 0);
}

TEST_F(AtOnceTest, ADearJobIsForAWorker) {
  auto pool = MakeAtOncePool(1);
  TestJob job(lane_, 2);
  ASSERT_TRUE(pool->Submit(&job).ok());
  pool->Drain();
  EXPECT_EQ(job.runs, 1);
  EXPECT_NE(job.thread, std::this_thread::get_id());
  EXPECT_EQ(pool->Stats().at_once, 0);
}

TEST_F(AtOnceTest, NobodyStandsInWhileEveryWorkerIsBusy) {
  auto pool = MakeAtOncePool(1);
  TestJob& blocker = Occupy(*pool, /*rows=*/2);
  TestJob job(lane_, 1);
  ASSERT_TRUE(pool->Submit(&job).ok());
  EXPECT_EQ(job.runs, 0);
  EXPECT_EQ(pool->Stats().queued_requests, 1);
  blocker.hold->count_down();
  pool->Drain();
  EXPECT_EQ(job.runs, 1);
  EXPECT_NE(job.thread, std::this_thread::get_id());
}

TEST_F(AtOnceTest, NoMoreStandInThanThereAreWorkers) {
  auto pool = MakeAtOncePool(2);
  std::vector<std::unique_ptr<TestJob>> held;
  std::vector<std::thread> submitters;
  for (int i = 0; i < 2; ++i) {
    TestJob& job = *held.emplace_back(Make());
    job.hold = std::make_unique<std::latch>(1);
    submitters.emplace_back([&] { EXPECT_TRUE(pool->Submit(&job).ok()); });
    job.started.wait();
  }
  EXPECT_EQ(pool->Stats().busy_workers, 2);
  TestJob third(lane_, 1);
  ASSERT_TRUE(pool->Submit(&third).ok());
  third.ended.wait();  // The workers themselves are free.
  EXPECT_NE(third.thread, std::this_thread::get_id());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(held[i]->thread, submitters[i].get_id());
    held[i]->hold->count_down();
    submitters[i].join();
  }
  EXPECT_NE(held[0]->worker_index, held[1]->worker_index);
  pool->Drain();
  EXPECT_EQ(pool->Stats().at_once, 2);
}

TEST_F(AtOnceTest, DrainWaitsForThoseWhoStandIn) {
  auto pool = MakeAtOncePool(1);
  TestJob job(lane_, 1);
  job.hold = std::make_unique<std::latch>(1);
  std::thread submitter([&] { EXPECT_TRUE(pool->Submit(&job).ok()); });
  job.started.wait();
  std::atomic<bool> drained{false};
  std::thread drainer([&] {
    pool->Drain();
    drained.store(true);
  });
  // Drain has begun once nothing is taken any more.
  std::vector<std::unique_ptr<TestJob>> late;
  while (pool->Submit(late.emplace_back(Make(2)).get()).ok()) std::this_thread::yield();
  EXPECT_FALSE(drained.load());
  job.hold->count_down();
  drainer.join();
  submitter.join();
  EXPECT_EQ(job.runs, 1);
}

TEST_F(AtOnceTest, WhatIsTooLateIsRefusedAsEver) {
  auto pool = MakeAtOncePool(1);
  TestJob expired(lane_, 1, clock_.Now());
  EXPECT_EQ(pool->Submit(&expired).code(), absl::StatusCode::kDeadlineExceeded);
  TestJob cancelled(lane_, 1);
  cancelled.cancel.store(true);
  EXPECT_EQ(pool->Submit(&cancelled).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(expired.runs + cancelled.runs, 0);
  TestJob job(lane_, 1);
  ASSERT_TRUE(pool->Submit(&job).ok());  // The place is still free.
  EXPECT_EQ(job.runs, 1);
}

TEST_F(AtOnceTest, ManyProducersLoseNothing) {
  constexpr int kProducers = 4, kTasks = 500;
  std::vector<std::unique_ptr<TestJob>> jobs;
  for (int i = 0; i < kProducers * kTasks; ++i) jobs.push_back(Make(1 + i % 2));
  auto pool =
      MakePool(2, 2 * kProducers * kTasks, 4 * kProducers * kTasks, std::chrono::microseconds(15));
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kTasks; ++i) {
        EXPECT_TRUE(pool->Submit(jobs[p * kTasks + i].get()).ok());
      }
    });
  }
  for (std::thread& producer : producers) producer.join();
  pool->Drain();
  for (const auto& job : jobs) ASSERT_EQ(job->runs, 1);
  EXPECT_EQ(pool->Stats().rows, kProducers * kTasks * 3 / 2);
  EXPECT_EQ(pool->Stats().busy_workers, 0);
}

}  // namespace
}  // namespace ulfd::server
