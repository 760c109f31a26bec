// Scheduler: takes tasks from any thread and runs each on a worker, or says why not.  Knows nothing
// of gRPC.
//
// WorkerPool is the one implementation: first in, first out, one task per worker.  A scheduler that
// orders by deadline, merges tasks of one model generation or cuts them into tiles replaces it
// behind this interface.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_SCHEDULER_H_
#define ULFD_SERVER_SCHEDULER_SCHEDULER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runtime/model.h"
#include "server/scheduler/clock.h"

namespace ulfd::server {

// What a worker thread owns and lends to the task that it runs.
struct Worker {
  int index = 0;  // 0..workers-1
  engine::Workspace workspace;
  engine::RunResult result;
};

// Something to compute.  The scheduler borrows it from Submit until it has called Run or Drop,
// exactly one of the two and exactly once; in that call the task may destroy itself.
class Task {
 public:
  virtual ~Task() = default;

  // Ads to score: the unit of the queue's bound.  Constant from Submit on.
  virtual int64_t rows() const = 0;
  // When nobody waits for the result any more; TimePoint::max() if there is no such time.  Constant
  // from Submit on.
  virtual TimePoint deadline() const = 0;
  // Whether the caller went away.  Any thread.
  virtual bool cancelled() const = 0;

  // Computes, on a worker thread (one OpenMP thread).  May take long; may not throw.
  virtual void Run(Worker& worker) = 0;
  // Ends the task without computing it: DEADLINE_EXCEEDED or CANCELLED.  On a worker thread.
  virtual void Drop(const absl::Status& why) = 0;
};

// A moment of the queue.
struct SchedulerStats {
  int workers = 0;
  int busy_workers = 0;
  int64_t queued_requests = 0;
  int64_t queued_rows = 0;
  // Since the start: tasks dropped at the head of the queue.
  int64_t expired = 0;
  int64_t cancelled = 0;
  // Time that workers spent in Run, all together, since the start; counted when a task ends.
  std::chrono::nanoseconds busy{0};
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Queues the task.  Never blocks for long; any thread.  An error means that the task was not
  // taken and neither Run nor Drop will be called: RESOURCE_EXHAUSTED (the queue is full),
  // UNAVAILABLE (shutting down), DEADLINE_EXCEEDED or CANCELLED (too late already).
  virtual absl::Status Submit(Task* task) = 0;
  // Refuses new tasks from now on and returns when those that were taken have ended.  Not on a
  // worker thread.
  virtual void Drain() = 0;
  virtual SchedulerStats Stats() const = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_SCHEDULER_H_
