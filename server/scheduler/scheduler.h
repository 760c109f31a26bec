// Scheduler: takes jobs from any thread and computes each on workers, or says why not.  Knows
// nothing of gRPC.
//
// WorkerPool is the one implementation.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_SCHEDULER_H_
#define ULFD_SERVER_SCHEDULER_SCHEDULER_H_

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "server/scheduler/job.h"

namespace ulfd::server {

// A moment of the queue.
struct SchedulerStats {
  int workers = 0;
  int busy_workers = 0;
  int64_t queued_requests = 0;  // Jobs that nobody has started.
  int64_t queued_rows = 0;
  std::chrono::nanoseconds pending{0};  // Predicted work in hand, of one worker.
  bool overloaded = false;
  // Since the start: jobs dropped before they were computed.
  int64_t expired = 0;
  int64_t cancelled = 0;
  int64_t shed = 0;
  // Since the start: pieces of work, and the rows computed in them.
  int64_t batches = 0;
  int64_t rows = 0;
  // Since the start: jobs that were computed by the thread that submitted them.
  int64_t at_once = 0;
  // Time that workers spent computing, all together, since the start; counted when a piece ends.
  std::chrono::nanoseconds busy{0};
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Queues the job, or computes it at once if that costs less than to hand it over.  Never blocks
  // for long; any thread that holds no lock.  An error means that the job was not taken and that
  // none of its functions will be called: RESOURCE_EXHAUSTED (see refusal.h), UNAVAILABLE (shutting
  // down), DEADLINE_EXCEEDED or CANCELLED (too late already).
  virtual absl::Status Submit(Job* job) = 0;
  // What Submit would answer now; the job is not taken.  For jobs that cost much before they can be
  // queued.
  virtual absl::Status Check(Job* job) = 0;
  // Refuses new jobs from now on and returns when those that were taken have ended.  Not on a
  // worker thread.
  virtual void Drain() = 0;
  virtual SchedulerStats Stats() const = 0;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_SCHEDULER_H_
