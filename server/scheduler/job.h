// What the scheduler is given: jobs, which are calls to score, each of one lane (lane.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_JOB_H_
#define ULFD_SERVER_SCHEDULER_JOB_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime/model.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/lane.h"

namespace ulfd::server {

// What a worker thread owns and lends to the job that it runs.
struct Worker {
  int index = 0;           // 0..workers-1
  bool stands_in = false;  // Lent to a thread that computes what it submits.
  engine::Workspace workspace;
  TimePoint shrunk;  // When the workspace last gave back memory.
  engine::RunResult result;
};

// Lower goes first; within a class, who has less time left goes first.
enum class Priority : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };
constexpr int kPriorities = 3;

// One call.  The scheduler borrows it from Submit until it has ended it, exactly once, through
// RunTogether, End or Drop, or until Begin returns false; in that call the job may destroy itself.
//
// A small job is run whole, possibly with others of its lane: RunTogether.  A large one is cut:
// Begin on one worker, then RunRows over disjoint ranges on several workers at once, then End on
// the worker that finished the last range.
class Job {
 public:
  virtual ~Job() = default;

  // Constant from Submit on.  Any thread.
  virtual const std::shared_ptr<Lane>& lane() const = 0;  // Never null.
  // Whose it is: clients get equal shares.
  virtual const std::string& client() const = 0;
  virtual int64_t rows() const = 0;  // Ads to score; at least 1.
  // When nobody waits for the result any more; TimePoint::max() if there is no such time.
  virtual TimePoint deadline() const = 0;
  virtual Priority priority() const { return Priority::kNormal; }
  // Whether RunRows may be called for parts of the rows.
  virtual bool divisible() const = 0;
  // Whether the caller went away.  Any thread, any time.
  virtual bool cancelled() const = 0;

  // All of the following on worker threads (one OpenMP thread each); none may throw.

  // Computes and ends all of `jobs`, which have one lane; this is the first of them.
  virtual void RunTogether(Worker& worker, absl::Span<Job* const> jobs) = 0;
  // What is done once, before any rows.  false: the job has ended itself (a bad request, or one
  // that cannot be cut after all).
  virtual bool Begin(Worker& worker) = 0;
  // After Begin, until the job has ended: memory that it keeps.
  virtual int64_t held_bytes() const = 0;
  // Rows [begin, end).  Several workers at once, on disjoint ranges.
  virtual void RunRows(Worker& worker, int64_t begin, int64_t end) = 0;
  // After every range.  Ends the job.
  virtual void End(Worker& worker) = 0;
  // Ends the job without (further) computing, also after Begin: DEADLINE_EXCEEDED, CANCELLED or a
  // refusal.
  virtual void Drop(const absl::Status& why) = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_JOB_H_
