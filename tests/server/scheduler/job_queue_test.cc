// JobQueue: what comes next, in situations that are set up by hand; no threads, no sleeping.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/scheduler/refusal.h"

namespace ulfd::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Kind = JobQueue::Work::Kind;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr TimePoint kStart{std::chrono::seconds(100)};

class FakeJob final : public Job {
 public:
  FakeJob(const std::shared_ptr<Lane>& lane, int64_t rows, TimePoint deadline = TimePoint::max(),
          Priority priority = Priority::kNormal)
      : lane_(lane), rows_(rows), deadline_(deadline), priority_(priority) {}
  const std::shared_ptr<Lane>& lane() const override { return lane_; }
  const std::string& client() const override { return from; }
  int64_t rows() const override { return rows_; }
  TimePoint deadline() const override { return deadline_; }
  Priority priority() const override { return priority_; }
  bool divisible() const override { return divide; }
  bool cancelled() const override { return cancel; }
  void RunTogether(Worker&, absl::Span<Job* const>) override {}
  bool Begin(Worker&) override { return true; }
  int64_t held_bytes() const override { return held; }
  void RunRows(Worker&, int64_t, int64_t) override {}
  void End(Worker&) override {}
  void Drop(const absl::Status&) override {}

  std::string from = "a";
  bool divide = true;
  bool cancel = false;
  int64_t held = 0;

 private:
  const std::shared_ptr<Lane> lane_;
  const int64_t rows_;
  const TimePoint deadline_;
  const Priority priority_;
};

// 10 us per row and nothing else.
std::shared_ptr<Lane> MakeLane(const std::string& name, const Lane::Limits& limits = {},
                               int64_t piece_rows = Lane::kPieceRows) {
  auto lane = std::make_shared<Lane>(name, limits, CostModel::kGuess, piece_rows);
  for (int i = 0; i < 400; ++i) {
    const int64_t rows = 1 + i * 7 % 300, users = 1 + i % 3;
    lane->cost().Observe(users, rows, nanoseconds(10'000 * rows));
  }
  return lane;
}

class JobQueueTest : public ::testing::Test {
 protected:
  FakeJob& Make(const std::shared_ptr<Lane>& lane, int64_t rows,
                nanoseconds left = nanoseconds::max(), Priority priority = Priority::kNormal) {
    const TimePoint deadline = left == nanoseconds::max() ? TimePoint::max() : now_ + left;
    return *jobs_.emplace_back(std::make_unique<FakeJob>(lane, rows, deadline, priority));
  }
  FakeJob& Add(JobQueue& queue, const std::shared_ptr<Lane>& lane, int64_t rows,
               nanoseconds left = nanoseconds::max(), Priority priority = Priority::kNormal) {
    FakeJob& job = Make(lane, rows, left, priority);
    const absl::Status status = queue.Admit(&job, now_);
    EXPECT_TRUE(status.ok()) << status;
    return job;
  }
  JobQueue::Work Take(JobQueue& queue, int idle = 0) { return queue.Take(now_, idle, dropped_); }
  JobQueue::Work Done(JobQueue& queue, const JobQueue::Work& work, bool alive = true) {
    JobQueue::Work next = queue.Done(work, alive, work.predicted, dropped_);
    if (next.kind == Kind::kEnd) queue.Done(next, true, nanoseconds(0), dropped_);
    return next;
  }

  const std::shared_ptr<Lane> lane_ = MakeLane("din"), other_ = MakeLane("tdm");
  TimePoint now_ = kStart;
  std::vector<std::unique_ptr<FakeJob>> jobs_;
  std::vector<JobQueue::Dropped> dropped_;
};

TEST_F(JobQueueTest, RunsASmallJobWhole) {
  JobQueue queue({});
  FakeJob& job = Add(queue, lane_, 10);
  EXPECT_EQ(queue.queued_rows(), 10);
  const JobQueue::Work work = Take(queue);
  EXPECT_EQ(work.kind, Kind::kTogether);
  EXPECT_THAT(work.jobs, ElementsAre(&job));
  EXPECT_EQ(queue.queued_rows(), 0);
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(Take(queue).kind, Kind::kNone);
  EXPECT_EQ(Done(queue, work).kind, Kind::kNone);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pending().count(), 0);
}

TEST_F(JobQueueTest, WhatIsTakenOnArrivalNeverWaits) {
  JobQueue queue({});
  FakeJob& job = Make(lane_, 10);
  JobQueue::Work work;
  ASSERT_TRUE(queue.AdmitTaken(&job, now_, milliseconds(2), work).ok());
  EXPECT_EQ(work.kind, Kind::kTogether);
  EXPECT_THAT(work.jobs, ElementsAre(&job));
  EXPECT_EQ(work.end, 10);
  EXPECT_EQ(queue.queued_requests(), 0);
  EXPECT_EQ(queue.queued_rows(), 0);
  EXPECT_EQ(queue.pending(), work.predicted);
  EXPECT_FALSE(queue.HasWork());
  EXPECT_FALSE(queue.empty());
  // Others of the lane come and go meanwhile.
  FakeJob& second = Add(queue, lane_, 20);
  const JobQueue::Work other = Take(queue);
  EXPECT_THAT(other.jobs, ElementsAre(&second));
  EXPECT_EQ(Done(queue, work).kind, Kind::kNone);
  EXPECT_EQ(queue.pending(), other.predicted);
  EXPECT_EQ(Done(queue, other).kind, Kind::kNone);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pending().count(), 0);
}

TEST_F(JobQueueTest, WhatIsTakenOnArrivalIsCheckedAndCharged) {
  JobQueue queue({});
  JobQueue::Work work;
  FakeJob& expired = Make(lane_, 10, nanoseconds(0));
  EXPECT_TRUE(absl::IsDeadlineExceeded(queue.AdmitTaken(&expired, now_, milliseconds(2), work)));
  FakeJob& gone = Make(lane_, 10);
  gone.cancel = true;
  EXPECT_TRUE(absl::IsCancelled(queue.AdmitTaken(&gone, now_, milliseconds(2), work)));
  EXPECT_EQ(work.kind, Kind::kNone);
  EXPECT_TRUE(queue.empty());
  // `lane_` has had its turn then: `other_` is first, though it comes later.
  FakeJob& job = Make(lane_, 100);
  ASSERT_TRUE(queue.AdmitTaken(&job, now_, milliseconds(2), work).ok());
  Add(queue, lane_, 100);
  FakeJob& first = Add(queue, other_, 100);
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&first));
  Done(queue, work);
}

TEST_F(JobQueueTest, CutsALargeJobIntoTilesOfAMillisecond) {
  JobQueue queue({.workers = 2});
  FakeJob& job = Add(queue, lane_, 2000);
  const JobQueue::Work begin = Take(queue, 1);
  ASSERT_EQ(begin.kind, Kind::kBegin);
  EXPECT_EQ(Take(queue).kind, Kind::kNone);  // Nobody else can help before the user's part is done.
  EXPECT_EQ(Done(queue, begin).kind, Kind::kNone);
  std::vector<JobQueue::Work> pieces;
  for (JobQueue::Work work = Take(queue); work.kind != Kind::kNone; work = Take(queue)) {
    ASSERT_EQ(work.kind, Kind::kRows);
    EXPECT_EQ(work.begin, pieces.empty() ? 0 : pieces.back().end);
    EXPECT_LE(work.predicted, microseconds(1100));
    EXPECT_GE(work.end - work.begin, 16);
    pieces.push_back(work);
  }
  EXPECT_EQ(pieces.back().end, 2000);
  EXPECT_GE(pieces.size(), 19u);
  // They end in any order; the last one ends the job.
  std::reverse(pieces.begin(), pieces.end());
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    EXPECT_EQ(Done(queue, pieces[i]).kind, Kind::kNone);
  }
  const JobQueue::Work end = Done(queue, pieces.back());
  EXPECT_EQ(end.kind, Kind::kEnd);
  EXPECT_THAT(end.jobs, ElementsAre(&job));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pending().count(), 0);
}

TEST_F(JobQueueTest, WhatHasBegunHoldsBoundedMemory) {
  JobQueue queue({.workers = 2, .max_held_bytes = 100});
  for (const char* client : {"a", "b", "c", "d"}) {
    FakeJob& job = Make(lane_, 2000);
    job.from = client;
    job.held = 60;
    ASSERT_TRUE(queue.Admit(&job, now_).ok());
  }
  for (int i = 0; i < 2; ++i) {
    const JobQueue::Work work = Take(queue);
    ASSERT_EQ(work.kind, Kind::kBegin);
    Done(queue, work);
  }
  // The others have got less, and begin after one of these two has ended.  Small jobs and other
  // lanes do not wait for that.
  FakeJob& small = Add(queue, lane_, 10);
  FakeJob& other = Add(queue, other_, 2000);
  int begun = 0, ended = 0;
  while (!queue.empty()) {
    const JobQueue::Work work = Take(queue);
    ASSERT_NE(work.kind, Kind::kNone);
    const Job* job = work.jobs[0];
    if (work.kind == Kind::kTogether || job == &other) {
      if (work.kind == Kind::kBegin || job == &small) {
        EXPECT_EQ(ended, 0);
      }
      Done(queue, work);
      continue;
    }
    if (work.kind == Kind::kBegin) {
      EXPECT_GT(ended, begun++);
    }
    if (Done(queue, work).kind == Kind::kEnd) ++ended;
  }
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 4);
}

TEST_F(JobQueueTest, RunsWhatCannotBeCutWhole) {
  JobQueue queue({});
  Make(lane_, 2000).divide = false;
  ASSERT_TRUE(queue.Admit(jobs_.back().get(), now_).ok());
  EXPECT_EQ(Take(queue).kind, Kind::kTogether);
}

TEST_F(JobQueueTest, AJobThatEndsItselfInBeginIsGone) {
  JobQueue queue({});
  Add(queue, lane_, 2000);
  const JobQueue::Work begin = Take(queue);
  EXPECT_EQ(Done(queue, begin, /*alive=*/false).kind, Kind::kNone);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(Take(queue).kind, Kind::kNone);
}

TEST_F(JobQueueTest, MergesSmallJobsThatWaitUpToATile) {
  JobQueue queue({});
  std::vector<Job*> first, rest;
  for (int i = 0; i < 12; ++i) (i < 9 ? first : rest).push_back(&Add(queue, lane_, 10));
  Add(queue, other_, 10);
  const JobQueue::Work work = Take(queue);
  ASSERT_EQ(work.kind, Kind::kTogether);
  // 9 or 10 jobs of 10 rows make a millisecond.
  EXPECT_GE(work.jobs.size(), 9u);
  EXPECT_LE(work.jobs.size(), 10u);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(work.jobs[i], first[i]);
  EXPECT_EQ(work.end, 10 * static_cast<int64_t>(work.jobs.size()));
  for (const Job* job : work.jobs) EXPECT_EQ(job->lane(), lane_);
}

TEST_F(JobQueueTest, LeavesJobsToWorkersThatAreIdle) {
  JobQueue queue({.workers = 2});
  Add(queue, lane_, 10);
  Add(queue, lane_, 10);
  EXPECT_THAT(Take(queue, /*idle=*/1).jobs, SizeIs(1));
  EXPECT_THAT(Take(queue).jobs, SizeIs(1));
}

TEST_F(JobQueueTest, DoesNotMergeMoreThanAllowed) {
  JobQueue queue({.max_batch_rows = 25});
  for (int i = 0; i < 4; ++i) Add(queue, lane_, 10);
  EXPECT_THAT(Take(queue).jobs, SizeIs(2));
  JobQueue pairs({.max_batch_requests = 1});
  for (int i = 0; i < 4; ++i) Add(pairs, lane_, 10);
  EXPECT_THAT(Take(pairs).jobs, SizeIs(1));
}

TEST_F(JobQueueTest, CutsAndMergesByTheRowsThatALaneWantsAtOnce) {
  const std::shared_ptr<Lane> heavy = MakeLane("heavy", {}, 160);  // 1.6 ms.
  JobQueue queue({});
  Add(queue, heavy, 200);
  EXPECT_EQ(Take(queue).kind, Kind::kTogether) << "below 1.5 pieces";
  Add(queue, heavy, 520);
  const JobQueue::Work begin = Take(queue);
  ASSERT_EQ(begin.kind, Kind::kBegin);
  Done(queue, begin);
  std::vector<int64_t> pieces;
  for (JobQueue::Work work = Take(queue); work.kind == Kind::kRows; work = Take(queue)) {
    pieces.push_back(work.end - work.begin);
    Done(queue, work);
  }
  EXPECT_THAT(pieces, ElementsAre(160, 160, 200)) << "no crumb of 40";
  for (int i = 0; i < 5; ++i) Add(queue, heavy, 50);
  EXPECT_THAT(Take(queue).jobs, SizeIs(3));
}

TEST_F(JobQueueTest, ASmallJobPassesALargeOne) {
  JobQueue queue({});
  Add(queue, lane_, 2000);
  const JobQueue::Work begin = Take(queue);
  Done(queue, begin);
  const JobQueue::Work tile = Take(queue);
  ASSERT_EQ(tile.kind, Kind::kRows);
  FakeJob& small = Add(queue, lane_, 10);
  Done(queue, tile);
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&small));
  EXPECT_EQ(Take(queue).kind, Kind::kRows);
}

TEST_F(JobQueueTest, ALargeJobDoesNotStarve) {
  JobQueue queue({.max_batch_requests = 1});
  Add(queue, lane_, 200);  // 2 ms: waits for 16 ms at most.
  int small = 0;
  for (; small < 1000; ++small) {
    Add(queue, lane_, 50);
    const JobQueue::Work work = Take(queue);
    if (work.kind == Kind::kBegin) break;
    now_ += microseconds(500);
    Done(queue, work);
  }
  EXPECT_GE(small, 5);
  EXPECT_LE(small, 40);
}

TEST_F(JobQueueTest, TheEarlierDeadlineGoesFirst) {
  JobQueue queue({.max_batch_requests = 1});
  FakeJob& later = Add(queue, lane_, 100, milliseconds(6));
  FakeJob& sooner = Add(queue, lane_, 100, milliseconds(5));
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&sooner));
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&later));
}

TEST_F(JobQueueTest, PriorityGoesBeforeDeadline) {
  JobQueue queue({});
  FakeJob& low = Add(queue, lane_, 10, milliseconds(50), Priority::kLow);
  FakeJob& normal = Add(queue, lane_, 10, milliseconds(90));
  FakeJob& high = Add(queue, lane_, 10, milliseconds(99), Priority::kHigh);
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&high));
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&normal));
  EXPECT_THAT(Take(queue).jobs, ElementsAre(&low));
}

TEST_F(JobQueueTest, ModelsShareTheWorkersByWeight) {
  const std::shared_ptr<Lane> heavy = MakeLane("heavy", {.weight = 3});
  JobQueue queue({.max_queued_work = std::chrono::seconds(10), .max_batch_requests = 1});
  // One floods with large requests, the other sends small ones: shares count work, not requests.
  for (int i = 0; i < 100; ++i) Add(queue, lane_, 100);
  for (int i = 0; i < 700; ++i) Add(queue, heavy, 20);
  double done[2] = {0, 0};
  for (int i = 0; i < 200; ++i) {
    const JobQueue::Work work = Take(queue);
    ASSERT_EQ(work.kind, Kind::kTogether);
    done[work.jobs[0]->lane() == heavy ? 1 : 0] += static_cast<double>(work.end);
    Done(queue, work);
  }
  EXPECT_NEAR(done[1] / done[0], 3.0, 0.3);
  // And by another one from then on.
  heavy->SetLimits({.weight = 0.5});
  double later[2] = {0, 0};
  for (int i = 0; i < 80; ++i) {
    const JobQueue::Work work = Take(queue);
    ASSERT_EQ(work.kind, Kind::kTogether);
    later[work.jobs[0]->lane() == heavy ? 1 : 0] += static_cast<double>(work.end);
    Done(queue, work);
  }
  EXPECT_NEAR(later[1] / later[0], 0.5, 0.1);
}

TEST_F(JobQueueTest, AModelThatWasIdleClaimsNoArrears) {
  JobQueue queue({.max_queued_work = std::chrono::seconds(10), .max_batch_requests = 1});
  for (int i = 0; i < 100; ++i) Add(queue, lane_, 100);
  for (int i = 0; i < 50; ++i) Done(queue, Take(queue));
  for (int i = 0; i < 50; ++i) Add(queue, other_, 100);
  int of_other = 0;
  for (int i = 0; i < 20; ++i) {
    const JobQueue::Work work = Take(queue);
    of_other += work.jobs[0]->lane() == other_ ? 1 : 0;
    Done(queue, work);
  }
  EXPECT_NEAR(of_other, 10, 1);
}

TEST_F(JobQueueTest, RefusesWithAReasonAndATimeToComeBack) {
  JobQueue requests({.max_queued_requests = 2});
  Add(requests, lane_, 10);
  Add(requests, lane_, 10);
  absl::Status status = requests.Admit(&Make(lane_, 10), now_);
  EXPECT_EQ(status.message(), "queue_full: 2 requests wait, 2 of this client, limit 2");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(status), ShedReason::kQueueFull);
  ASSERT_TRUE(RetryAfter(status).has_value());
  EXPECT_GE(RetryAfter(status)->count(), 1);

  JobQueue rows({.max_queued_rows = 500});
  Add(rows, lane_, 400);
  EXPECT_EQ(rows.Admit(&Make(lane_, 101), now_).message(),
            "queue_full: 400 ads wait, 400 of this client, and this request has 101, limit 500");
  EXPECT_EQ(rows.Check(&Make(lane_, 101), now_).message(),
            "queue_full: 400 ads wait, 400 of this client, and this request has 101, limit 500");
  // To ask takes no room.
  EXPECT_TRUE(rows.Check(&Make(lane_, 40), now_).ok());
  EXPECT_TRUE(rows.Admit(&Make(lane_, 40), now_).ok());
  EXPECT_EQ(rows.queued_rows(), 440);
}

TEST_F(JobQueueTest, AJobLargerThanTheQueueDoesNotCloseItForOthers) {
  JobQueue queue({.max_queued_rows = 500});
  Add(queue, lane_, 5000);
  EXPECT_EQ(queue.queued_rows(), 250);
  EXPECT_TRUE(queue.Admit(&Make(lane_, 180), now_).ok());
  EXPECT_EQ(queue.Admit(&Make(lane_, 5000), now_).message(),
            "queue_full: 430 ads wait, 430 of this client, and this request has 5000, limit 500");
}

TEST_F(JobQueueTest, DearJobsCountAsTheLargestOrdinaryOne) {
  JobQueue queue({.max_queued_rows = 500, .max_job_rows = 100});
  Add(queue, lane_, 500);
  Add(queue, lane_, 300);
  EXPECT_EQ(queue.queued_rows(), 200);
  EXPECT_TRUE(queue.Admit(&Make(lane_, 20), now_).ok());
}

TEST_F(JobQueueTest, RefusesMoreWorkThanTheQueueMayHold) {
  JobQueue queue({.workers = 2, .max_queued_work = milliseconds(10)});
  Add(queue, lane_, 1900);  // 19 ms for one worker.
  const absl::Status status = queue.Admit(&Make(lane_, 300), now_);
  EXPECT_EQ(ReasonOf(status), ShedReason::kQueueFull);
  EXPECT_THAT(std::string(status.message()),
              ::testing::MatchesRegex("queue_full: 9\\.. ms of work wait, 9\\.. ms of this client, "
                                      "and this request needs [23]\\.. ms, limit 10\\.0 ms"));
  // A single request larger than the limit is served if nothing waits.
  JobQueue empty({.max_queued_work = milliseconds(10)});
  EXPECT_TRUE(empty.Admit(&Make(lane_, 2000), now_).ok());
}

TEST_F(JobQueueTest, AModelsLimitDoesNotTouchOthers) {
  const std::shared_ptr<Lane> limited = MakeLane("small", {.max_queued_rows = 100});
  JobQueue queue({});
  Add(queue, limited, 80);
  EXPECT_EQ(queue.Admit(&Make(limited, 30), now_).message(),
            "quota: 80 ads wait for model \"small\", 80 of this client, and this request has 30, "
            "its limit is 100");
  EXPECT_TRUE(queue.Admit(&Make(lane_, 500), now_).ok());
  // A new limit holds for the next request.
  limited->SetLimits({.max_queued_rows = 130});
  Add(queue, limited, 30);
  limited->SetLimits({.max_queued_rows = 50});
  EXPECT_EQ(queue.Admit(&Make(limited, 1), now_).message(),
            "quota: 110 ads wait for model \"small\", 110 of this client, and this request has 1, "
            "its limit is 50");
}

TEST_F(JobQueueTest, RefusesWhatCannotMakeItsDeadline) {
  JobQueue queue({});
  Add(queue, lane_, 1000, milliseconds(40));  // 10 ms of work ahead.
  const absl::Status status = queue.Admit(&Make(lane_, 1000, milliseconds(15)), now_);
  EXPECT_TRUE(status.ok()) << "it goes first: its deadline is earlier: " << status;
  const absl::Status late = queue.Admit(&Make(lane_, 1000, milliseconds(18)), now_);
  EXPECT_EQ(ReasonOf(late), ShedReason::kDeadline) << late;
  EXPECT_THAT(std::string(late.message()), ::testing::HasSubstr("the deadline leaves 18.0 ms"));
  // A small one passes the large ones and makes it.
  EXPECT_TRUE(queue.Admit(&Make(lane_, 10, milliseconds(3)), now_).ok());
}

TEST_F(JobQueueTest, TriesWhatSeemsImpossibleOnceAtATime) {
  // Otherwise a wrong prediction would never be put right.
  JobQueue queue({.workers = 2});
  Add(queue, other_, 10);
  EXPECT_TRUE(queue.Admit(&Make(lane_, 2000, milliseconds(2)), now_).ok());
  EXPECT_EQ(ReasonOf(queue.Admit(&Make(lane_, 2000, milliseconds(2)), now_)),
            ShedReason::kDeadline);
}

TEST_F(JobQueueTest, RefusesWhatIsTooLateOnArrival) {
  JobQueue queue({});
  EXPECT_EQ(queue.Admit(&Make(lane_, 1, nanoseconds(0)), now_),
            absl::DeadlineExceededError("the deadline had passed when the call arrived"));
  Make(lane_, 1).cancel = true;
  EXPECT_EQ(queue.Admit(jobs_.back().get(), now_), absl::CancelledError("the caller went away"));
  EXPECT_TRUE(queue.empty());
}

TEST_F(JobQueueTest, DropsWhatExpiredOrLeftBeforeItCosts) {
  JobQueue queue({});
  FakeJob& expires = Add(queue, lane_, 10, milliseconds(5));
  FakeJob& leaves = Add(queue, lane_, 10);
  FakeJob& stays = Add(queue, lane_, 10);
  leaves.cancel = true;
  now_ += milliseconds(5);
  const JobQueue::Work work = Take(queue);
  EXPECT_THAT(work.jobs, ElementsAre(&stays));
  EXPECT_EQ(work.end, 10);
  ASSERT_THAT(dropped_, SizeIs(2));
  for (const JobQueue::Dropped& drop : dropped_) {
    EXPECT_EQ(drop.why, drop.job == &expires
                            ? absl::DeadlineExceededError(
                                  "the deadline passed while the request waited for a worker")
                            : absl::CancelledError("the caller went away"));
  }
  Done(queue, work);
  EXPECT_TRUE(queue.empty());
}

TEST_F(JobQueueTest, GivesUpBetweenTilesAndTellsTheJobOnce) {
  JobQueue queue({.workers = 2});
  FakeJob& job = Add(queue, lane_, 2000);
  Done(queue, Take(queue));
  const JobQueue::Work a = Take(queue), b = Take(queue);
  job.cancel = true;
  EXPECT_EQ(Take(queue).kind, Kind::kNone);
  EXPECT_THAT(dropped_, SizeIs(0));  // Two workers still compute: it may not go yet.
  Done(queue, a);
  EXPECT_THAT(dropped_, SizeIs(0));
  EXPECT_EQ(Done(queue, b).kind, Kind::kNone);
  ASSERT_THAT(dropped_, SizeIs(1));
  EXPECT_EQ(dropped_[0].why, absl::CancelledError("the caller went away"));
  EXPECT_TRUE(queue.empty());
}

// What became of jobs under overload.
struct OverloadResult {
  int refused = 0;  // On arrival.
  int shed = 0;     // After waiting.
  int served = 0;
  int passed = 0;             // Served although an older one waited.
  nanoseconds worst_wait{0};  // Of those who were served in the second half.
};

class JobQueueOverloadTest : public JobQueueTest {
 protected:
  static JobQueueOptions Options() {
    return {.max_batch_requests = 1,
            .codel_target = milliseconds(5),
            .codel_interval = milliseconds(100)};
  }

  // For `duration`, a job arrives every half millisecond, is predicted to take 1 ms, and takes one
  // worker `actual`.  `left`: until the deadline of each.
  OverloadResult Overload(JobQueue& queue, nanoseconds duration, nanoseconds actual,
                          nanoseconds left = nanoseconds::max()) {
    OverloadResult result;
    std::map<const Job*, TimePoint> waiting;
    const TimePoint end = now_ + duration;
    while (now_ < end) {
      for (int i = 0; i < 2 * actual / nanoseconds(milliseconds(1)); ++i) {
        FakeJob& job = Make(lane_, 100, left);
        const absl::Status status = queue.Admit(&job, now_);
        if (status.ok()) {
          waiting[&job] = now_;
          continue;
        }
        EXPECT_THAT(ReasonOf(status), AnyOf(ShedReason::kCodel, ShedReason::kDeadline)) << status;
        EXPECT_GE(RetryAfter(status), milliseconds(1));
        ++result.refused;
      }
      const JobQueue::Work work = Take(queue);
      EXPECT_EQ(work.kind, Kind::kTogether) << "a worker idles";
      if (work.kind == Kind::kNone) break;
      for (const JobQueue::Dropped& drop : dropped_) {
        EXPECT_EQ(ReasonOf(drop.why), ShedReason::kCodel) << drop.why;
        waiting.erase(drop.job);
        ++result.shed;
      }
      dropped_.clear();
      ++result.served;
      const auto served = waiting.find(work.jobs[0]);
      const TimePoint arrival = served == waiting.end() ? kStart : served->second;
      for (const auto& [job, since] : waiting) {
        if (since >= arrival) continue;
        ++result.passed;
        break;
      }
      if (end - now_ < duration / 2) {
        result.worst_wait = std::max<nanoseconds>(result.worst_wait, now_ - arrival);
      }
      waiting.erase(work.jobs[0]);
      now_ += actual;
      Done(queue, work);
    }
    return result;
  }
};

TEST_F(JobQueueOverloadTest, RefusesNewcomersSoThatWhoIsTakenIsServedSoon) {
  JobQueue queue(Options());
  Overload(queue, milliseconds(300), milliseconds(1));
  EXPECT_TRUE(queue.overloaded());
  const OverloadResult steady = Overload(queue, milliseconds(1000), milliseconds(1));
  EXPECT_EQ(steady.served, 1000);
  EXPECT_NEAR(steady.refused, 1000, 10);
  EXPECT_EQ(steady.shed, 0);
  EXPECT_EQ(steady.passed, 0);
  EXPECT_LE(steady.worst_wait, milliseconds(10));
}

TEST_F(JobQueueOverloadTest, WaitsLongerForThoseWhoHaveTime) {
  JobQueue queue(Options());
  // A quarter of the deadline is no overload, and the interval is as many times longer.
  const nanoseconds left = milliseconds(200);
  EXPECT_EQ(Overload(queue, milliseconds(100), milliseconds(1), left).refused, 0);
  Overload(queue, milliseconds(1400), milliseconds(1), left);
  EXPECT_TRUE(queue.overloaded());
  const OverloadResult steady = Overload(queue, milliseconds(2000), milliseconds(1), left);
  EXPECT_EQ(steady.served, 2000);
  EXPECT_EQ(steady.shed, 0);
  EXPECT_GE(steady.worst_wait, milliseconds(70));
  EXPECT_LE(steady.worst_wait, milliseconds(80));
}

TEST_F(JobQueueOverloadTest, ShedsTheOldestWherePredictionsAreWrong) {
  JobQueue queue(Options());
  // Everything takes four times what is predicted.
  const OverloadResult result = Overload(queue, milliseconds(4000), milliseconds(4));
  EXPECT_EQ(result.served, 1000);
  EXPECT_GT(result.shed, 20);
  EXPECT_GT(result.passed, 20);  // The newest have the best chance then.
  EXPECT_LT(result.worst_wait, milliseconds(120));
}

TEST_F(JobQueueOverloadTest, TakesPatientWorkAgainOnceItIsOver) {
  JobQueue queue(Options());
  Overload(queue, milliseconds(300), milliseconds(1));
  const auto refused = [&](int jobs) {
    int count = 0;
    for (int i = 0; i < jobs; ++i) count += queue.Admit(&Make(lane_, 100), now_).ok() ? 0 : 1;
    return count;
  };
  EXPECT_GT(refused(50), 0);
  EXPECT_TRUE(queue.Admit(&Make(lane_, 100, nanoseconds::max(), Priority::kHigh), now_).ok());
  const auto drain = [&] {
    for (JobQueue::Work work = Take(queue); work.kind != Kind::kNone; work = Take(queue)) {
      now_ += milliseconds(1);
      Done(queue, work);
    }
  };
  // It is over when the queue has been short for an interval.
  drain();
  EXPECT_FALSE(queue.overloaded());
  now_ += milliseconds(110);
  EXPECT_EQ(refused(50), 0);
  drain();
  EXPECT_THAT(dropped_, SizeIs(0));
}

TEST_F(JobQueueTest, AQueueOfAFewSlowRequestsIsNoOverload) {
  JobQueue queue({.max_queued_work = std::chrono::seconds(10)});
  for (int i = 0; i < 5; ++i) {
    Make(lane_, 20000).divide = false;  // 200 ms each.
    ASSERT_TRUE(queue.Admit(jobs_.back().get(), now_).ok());
  }
  for (int i = 0; i < 5; ++i) {
    const JobQueue::Work work = Take(queue);
    ASSERT_EQ(work.kind, Kind::kTogether);
    now_ += milliseconds(200);
    Done(queue, work);
  }
  EXPECT_THAT(dropped_, SizeIs(0));
}

TEST_F(JobQueueTest, PatientCallersAreNotShedEarly) {
  // Five callers who call again at once; each waits for 80 ms of the second that it has.
  int lost[2] = {0, 0};
  for (const bool patient : {false, true}) {
    JobQueue queue({.codel_target = milliseconds(5), .codel_interval = milliseconds(100)});
    int callers = 5;
    for (int i = 0; i < 300; ++i) {
      for (; callers > 0; --callers) {
        FakeJob& job =
            Make(lane_, 2000, patient ? nanoseconds(milliseconds(1000)) : nanoseconds::max());
        job.divide = false;
        if (queue.Admit(&job, now_).ok()) continue;
        ++lost[patient ? 1 : 0];
        break;  // Those left call again later.
      }
      const JobQueue::Work work = Take(queue);
      ASSERT_EQ(work.kind, Kind::kTogether);
      now_ += milliseconds(20);
      Done(queue, work);
      callers += 1 + static_cast<int>(dropped_.size());
      lost[patient ? 1 : 0] += static_cast<int>(dropped_.size());
      dropped_.clear();
    }
  }
  EXPECT_GT(lost[0], 0);
  EXPECT_EQ(lost[1], 0);
}

TEST_F(JobQueueTest, WhoHadMoreIsNoNewcomerWhenItComesAgain) {
  JobQueue queue({});
  const auto add = [&](const char* client, int64_t rows) {
    FakeJob& job = Make(lane_, rows);
    job.from = client;
    ASSERT_TRUE(queue.Admit(&job, now_).ok());
  };
  const auto next = [&] {
    const JobQueue::Work work = Take(queue, 1);
    std::string client = work.jobs.at(0)->client();
    Done(queue, work);
    return client;
  };
  for (int i = 0; i < 8; ++i) add("many", 10);
  add("one", 45);
  EXPECT_EQ(next(), "many");
  EXPECT_EQ(next(), "one");
  add("one", 45);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next(), "many") << i;
  EXPECT_EQ(next(), "one");
}

// A client who asks for much, and others beside it.
class JobQueueClientsTest : public JobQueueTest {
 protected:
  absl::Status Ask(JobQueue& queue, const std::string& client, int64_t rows,
                   nanoseconds left = nanoseconds::max(), std::shared_ptr<Lane> lane = nullptr) {
    FakeJob& job = Make(lane == nullptr ? lane_ : lane, rows, left);
    job.from = client;
    return queue.Admit(&job, now_);
  }
  // Asks until the queue refuses; returns how many it took.
  int Flood(JobQueue& queue, const std::string& client, int64_t rows,
            nanoseconds left = nanoseconds::max()) {
    int taken = 0;
    while (taken < 100000 && Ask(queue, client, rows, left).ok()) ++taken;
    return taken;
  }
  // Whose the next piece is.
  std::string Next(JobQueue& queue) {
    const JobQueue::Work work = Take(queue);
    if (work.kind == Kind::kNone) return "";
    std::string client = static_cast<const FakeJob*>(work.jobs[0])->from;
    now_ += work.predicted;
    Done(queue, work);
    return client;
  }

  // How many calls are served of clients that always have 20 in the queue, in 300 batches.  What
  // their work takes: times what is predicted; what takes longer has a lane of its own.
  std::map<std::string, int> ServeBatches(const std::map<std::string, int>& clients) {
    JobQueue queue({.max_batch_requests = 4});
    std::map<std::string, int> asked, served;
    for (int i = 0; i < 300; ++i) {
      for (const auto& [client, times] : clients) {
        for (; asked[client] - served[client] < 20; ++asked[client]) {
          EXPECT_TRUE(Ask(queue, client, 5, nanoseconds::max(), times > 1 ? other_ : lane_).ok());
        }
      }
      const JobQueue::Work work = Take(queue);
      for (const Job* job : work.jobs) ++served[job->client()];
      const nanoseconds took = clients.at(work.jobs[0]->client()) * work.predicted;
      now_ += took;
      queue.Done(work, true, took, dropped_);
    }
    return served;
  }
};

TEST_F(JobQueueClientsTest, WhoAsksForMuchWaitsForItself) {
  JobQueue queue({.max_batch_requests = 1});
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Ask(queue, "flood", 100).ok());
  EXPECT_EQ(Next(queue), "flood");
  ASSERT_TRUE(Ask(queue, "b", 100).ok());
  ASSERT_TRUE(Ask(queue, "c", 100).ok());
  ASSERT_TRUE(Ask(queue, "b", 100).ok());
  std::map<std::string, int> served;
  for (int i = 0; i < 5; ++i) ++served[Next(queue)];
  EXPECT_THAT(served, ElementsAre(Pair("b", 2), Pair("c", 1), Pair("flood", 2)));
}

TEST_F(JobQueueClientsTest, WorkIsSharedEqually) {
  JobQueue queue({.max_batch_requests = 1});
  std::map<std::string, int> served;
  for (int i = 0; i < 300; ++i) {
    // The second asks for twice as many ads in each call.
    while (Ask(queue, "a", 50).ok() && Ask(queue, "b", 100).ok() && queue.queued_requests() < 40) {
    }
    ++served[Next(queue)];
  }
  EXPECT_NEAR(served["a"], 200, 4);
  EXPECT_NEAR(served["b"], 100, 4);
}

TEST_F(JobQueueClientsTest, BatchesAreSharedEqually) {
  const auto near = ::testing::AllOf(::testing::Ge(380), ::testing::Le(420));
  EXPECT_THAT(ServeBatches({{"a", 1}, {"b", 1}, {"c", 1}}),
              ElementsAre(Pair("a", near), Pair("b", near), Pair("c", near)));
}

// Requests that turn out to be wrong when they are read, each on a connection of its own.
TEST_F(JobQueueClientsTest, WhatTakesLongerThanPredictedIsChargedForIt) {
  JobQueue queue({.max_batch_requests = 1, .codel_target = std::chrono::seconds(100)});
  for (int i = 0; i < 160; ++i) {
    ASSERT_TRUE(Ask(queue, absl::StrCat("wrong", i / 20), 600).ok());
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Ask(queue, "right", 10).ok());
  }
  int right = 0;
  for (int i = 0; i < 160 && right < 100; ++i) {
    const JobQueue::Work work = Take(queue);
    const bool begins = work.kind == Kind::kBegin;
    right += begins ? 0 : 1;
    const nanoseconds took = begins ? milliseconds(40) : work.predicted;
    now_ += took;
    queue.Done(work, !begins, took, dropped_);
  }
  EXPECT_EQ(right, 100);
}

// Replies that take long to be made.
TEST_F(JobQueueClientsTest, EndsAreChargedToo) {
  JobQueue queue({.max_batch_requests = 1, .codel_target = std::chrono::seconds(100)});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Ask(queue, "long", 300).ok());
    ASSERT_TRUE(Ask(queue, "short", 300).ok());
  }
  std::map<std::string, int> ended;
  while (ended["short"] < 20) {
    const JobQueue::Work work = Take(queue);
    ASSERT_NE(work.kind, Kind::kNone);
    const JobQueue::Work end = queue.Done(work, true, work.predicted, dropped_);
    if (end.kind != Kind::kEnd) continue;
    const std::string client = end.jobs[0]->client();
    ++ended[client];
    EXPECT_FALSE(queue.empty());
    queue.Done(end, true, client == "long" ? milliseconds(30) : milliseconds(0), dropped_);
  }
  EXPECT_THAT(ended["long"], ::testing::AllOf(::testing::Ge(1), ::testing::Le(3)));
}

// The calls of a batch have each their part of what it took.
TEST_F(JobQueueClientsTest, BatchesThatTakeLongAreChargedToAll) {
  std::map<std::string, int> served = ServeBatches({{"a", 1}, {"b", 1}, {"slow", 100}});
  EXPECT_LT(served["slow"], served["a"] / 20);
}

TEST_F(JobQueueClientsTest, WhoAsksManyModelsIsOneClient) {
  JobQueue queue({.max_batch_requests = 1, .codel_target = std::chrono::seconds(100)});
  for (int i = 0; i < 10; ++i) {
    const std::shared_ptr<Lane> lane = MakeLane("of a alone");
    for (int k = 0; k < 20; ++k) ASSERT_TRUE(Ask(queue, "a", 100, nanoseconds::max(), lane).ok());
  }
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Ask(queue, "b", 100).ok());
  std::map<std::string, int> served;
  for (int i = 0; i < 100; ++i) ++served[Next(queue)];
  EXPECT_THAT(served, ElementsAre(Pair("a", 50), Pair("b", 50)));
}

TEST_F(JobQueueClientsTest, WeightsOfModelsHoldBetweenClients) {
  JobQueue queue({.max_batch_requests = 1, .codel_target = std::chrono::seconds(100)});
  const std::shared_ptr<Lane> heavy = MakeLane("heavy", {.weight = 3});
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Ask(queue, "a", 100, nanoseconds::max(), heavy).ok());
    ASSERT_TRUE(Ask(queue, "b", 100).ok());
  }
  std::map<std::string, int> served;
  for (int i = 0; i < 100; ++i) ++served[Next(queue)];
  EXPECT_THAT(served, ElementsAre(Pair("a", 75), Pair("b", 25)));
}

TEST_F(JobQueueClientsTest, ModelsThatComeAndGoLeaveNothingBehind) {
  JobQueue queue({.max_batch_requests = 1, .codel_target = std::chrono::seconds(100)});
  std::vector<std::weak_ptr<Lane>> lanes;
  for (int i = 0; i < 50; ++i) {
    std::shared_ptr<Lane> lane = MakeLane("new");
    lanes.push_back(lane);
    ASSERT_TRUE(Ask(queue, "a", 100, nanoseconds::max(), lane).ok());
    ASSERT_TRUE(Ask(queue, "a", 100).ok());
    Next(queue);
    if (i > 0) Next(queue);
    jobs_.clear();
  }
  const auto kept = std::count_if(lanes.begin(), lanes.end(),
                                  [](const std::weak_ptr<Lane>& lane) { return !lane.expired(); });
  EXPECT_LE(kept, 3);
}

TEST_F(JobQueueClientsTest, NobodyFillsTheQueueWithManyModels) {
  JobQueue queue({.max_queued_requests = 900, .codel_target = std::chrono::seconds(100)});
  int taken = 0;
  for (int i = 0; i < 10; ++i) {
    const std::shared_ptr<Lane> lane = MakeLane("of a alone");
    while (Ask(queue, "a", 10, nanoseconds::max(), lane).ok()) ++taken;
  }
  EXPECT_EQ(taken, 800);
}

TEST_F(JobQueueClientsTest, NobodyFillsTheQueueAlone) {
  for (const bool by_rows : {false, true}) {
    JobQueue queue({.max_queued_requests = by_rows ? 100000 : 900,
                    .max_queued_rows = by_rows ? 9000 : 200000,
                    .codel_target = std::chrono::seconds(100)});
    EXPECT_EQ(Flood(queue, "flood", 10), 800);
    EXPECT_TRUE(Ask(queue, "b", 10).ok());
    EXPECT_FALSE(Ask(queue, "flood", 10).ok());
    EXPECT_GT(Flood(queue, "b", 10), 80);
    EXPECT_TRUE(Ask(queue, "c", 10).ok());
  }
}

TEST_F(JobQueueClientsTest, AClientIsNotRefusedForTheWaitOfAnother) {
  // A second of work waits, which the others have no time for.
  JobQueue queue({.max_queued_work = std::chrono::seconds(1)});
  EXPECT_NEAR(Flood(queue, "flood", 1000), 89, 1);  // Eight ninths.
  EXPECT_TRUE(Ask(queue, "b", 100, milliseconds(20)).ok());
  while (Next(queue) == "flood") EXPECT_LT(now_ - kStart, milliseconds(20));
}

TEST_F(JobQueueClientsTest, AFloodAndANewcomerWithTheSameDeadline) {
  JobQueue queue({.workers = 1, .max_batch_requests = 1});
  int lost = 0, asked = 0;
  for (int ms = 0; ms < 2000; ++ms) {
    for (int i = 0; i < 5; ++i) Ask(queue, "flood", 100, milliseconds(20)).IgnoreError();
    if (ms % 5 == 0) {
      ++asked;
      lost += Ask(queue, "b", 100, milliseconds(20)).ok() ? 0 : 1;
    }
    Next(queue);
    for (const JobQueue::Dropped& drop : dropped_) {
      lost += static_cast<const FakeJob*>(drop.job)->from == "b" ? 1 : 0;
    }
    dropped_.clear();
  }
  EXPECT_EQ(asked, 400);
  EXPECT_EQ(lost, 0);
}

TEST_F(JobQueueTest, KeepsALaneWhoseJobsAndOwnerAreGone) {
  JobQueue queue({});
  std::weak_ptr<Lane> watch;
  JobQueue::Work work;
  {
    std::shared_ptr<Lane> lane = MakeLane("gone");
    watch = lane;
    FakeJob job(lane, 10);
    ASSERT_TRUE(queue.Admit(&job, now_).ok());
    work = Take(queue);
  }
  EXPECT_FALSE(watch.expired());
  Done(queue, work);
  EXPECT_TRUE(watch.expired());
  EXPECT_TRUE(queue.empty());
}

TEST_F(JobQueueTest, DoesNotMergeForAModelThatCannot) {
  lane_->SetMerges(false);
  JobQueue queue({});
  for (int i = 0; i < 3; ++i) Add(queue, lane_, 10);
  EXPECT_THAT(Take(queue).jobs, SizeIs(1));
}

TEST_F(JobQueueTest, CountsOnOtherWorkersForWhatCanBeCut) {
  JobQueue one({}), four({.workers = 4});
  for (JobQueue* queue : {&one, &four}) {
    Add(*queue, lane_, 10);
    Add(*queue, other_, 10);
    Add(*queue, lane_, 10);
  }
  // 20 ms of work in 12 ms.
  EXPECT_EQ(ReasonOf(one.Admit(&Make(lane_, 2000, milliseconds(12)), now_)), ShedReason::kDeadline);
  EXPECT_TRUE(four.Admit(&Make(lane_, 2000, milliseconds(12)), now_).ok());
  FakeJob& whole = Make(lane_, 2000, milliseconds(12));
  whole.divide = false;
  EXPECT_EQ(ReasonOf(four.Admit(&whole, now_)), ShedReason::kDeadline);
}

TEST_F(JobQueueTest, CountsWhatRunsAsAhead) {
  JobQueue queue({});
  Make(lane_, 2000).divide = false;
  ASSERT_TRUE(queue.Admit(jobs_.back().get(), now_).ok());
  const JobQueue::Work running = Take(queue);  // 20 ms.
  EXPECT_EQ(queue.pending(), running.predicted);
  EXPECT_EQ(ReasonOf(queue.Admit(&Make(other_, 10, milliseconds(10)), now_)),
            ShedReason::kDeadline);
  Done(queue, running);
  EXPECT_TRUE(queue.Admit(&Make(other_, 10, milliseconds(10)), now_).ok());
}

TEST_F(JobQueueTest, ABurstIsNotShed) {
  JobQueue queue({.max_batch_requests = 1});
  for (int i = 0; i < 50; ++i) Add(queue, lane_, 100);  // 50 ms at once.
  int served = 0;
  for (JobQueue::Work work = Take(queue); work.kind != Kind::kNone; work = Take(queue)) {
    ++served;
    now_ += milliseconds(1);
    Done(queue, work);
  }
  EXPECT_EQ(served, 50);
  EXPECT_THAT(dropped_, SizeIs(0));
}

// A machine of two workers, many random jobs, everything at once: every job that was taken ends
// exactly once, and in time if it is served.
TEST_F(JobQueueTest, EndsEveryJobExactlyOnce) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    JobQueue queue({.workers = 2, .max_queued_work = milliseconds(50)});
    std::vector<std::unique_ptr<FakeJob>> jobs;
    absl::flat_hash_map<const Job*, int> ends;
    std::vector<std::pair<TimePoint, JobQueue::Work>> busy;
    int taken = 0;
    TimePoint now = kStart;
    const auto count_drops = [&] {
      for (const JobQueue::Dropped& drop : dropped_) ++ends[drop.job];
      dropped_.clear();
    };
    while (jobs.size() < 500 || !queue.empty()) {
      if (jobs.size() < 500) {
        const int64_t rows = random() % 4 == 0 ? 1 + random() % 2000 : 1 + random() % 50;
        jobs.push_back(std::make_unique<FakeJob>(random() % 2 == 0 ? lane_ : other_, rows,
                                                 now + milliseconds(1 + random() % 30),
                                                 static_cast<Priority>(random() % 3)));
        jobs.back()->divide = random() % 8 != 0;
        if (queue.Admit(jobs.back().get(), now).ok()) {
          ++taken;
          ends[jobs.back().get()] = 0;
        }
        if (random() % 10 == 0) jobs[random() % jobs.size()]->cancel = true;
      }
      now += microseconds(random() % 800);
      while (busy.size() < 2) {
        JobQueue::Work work = queue.Take(now, 1 - static_cast<int>(busy.size()), dropped_);
        count_drops();
        if (work.kind == Kind::kNone) break;
        for (const Job* job : work.jobs) EXPECT_EQ(ends[job], 0);
        const nanoseconds takes = microseconds(10 + random() % 1500);
        busy.emplace_back(now + takes, std::move(work));
      }
      for (size_t i = 0; i < busy.size();) {
        if (busy[i].first > now) {
          ++i;
          continue;
        }
        const JobQueue::Work work = busy[i].second;
        busy.erase(busy.begin() + static_cast<int64_t>(i));
        const bool alive = work.kind != Kind::kBegin || random() % 10 != 0;
        if (work.kind == Kind::kTogether || !alive) {
          for (const Job* job : work.jobs) ++ends[job];
        }
        const JobQueue::Work next = Done(queue, work, alive);
        if (next.kind == Kind::kEnd) ++ends[next.jobs[0]];
        count_drops();
      }
    }
    EXPECT_EQ(static_cast<int>(ends.size()), taken);
    for (const auto& [job, count] : ends) EXPECT_EQ(count, 1);
    EXPECT_EQ(queue.queued_rows(), 0);
    EXPECT_EQ(queue.queued_requests(), 0);
    EXPECT_EQ(queue.pending().count(), 0);
  }
}

}  // namespace
}  // namespace ulfd::server
