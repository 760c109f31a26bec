// WorkerPool: takes jobs from any thread and computes each on N threads that pull work from a
// JobQueue, or says why not.  Knows nothing of gRPC.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_WORKER_POOL_H_
#define ULFD_SERVER_SCHEDULER_WORKER_POOL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/job.h"
#include "server/scheduler/job_queue.h"

namespace ulfd::server {

// A moment of the queue.
struct SchedulerStats {
  int workers = 0;
  int busy_workers = 0;
  int64_t queued_requests = 0;  // Jobs that nobody has started.
  int64_t queued_rows = 0;
  std::chrono::nanoseconds pending{0};  // Predicted work in hand, of one worker.
  bool overloaded = false;
  // Since the start: pieces of work, and the rows computed in them.
  int64_t batches = 0;
  int64_t rows = 0;
  // Since the start: jobs that were computed by the thread that submitted them.
  int64_t at_once = 0;
  // Time that workers spent computing, all together, since the start; counted when a piece ends.
  std::chrono::nanoseconds busy{0};
};

struct WorkerPoolOptions {
  JobQueueOptions queue;  // queue.workers threads.
  // A job that is predicted to take no longer is computed by the thread that submits it, in the
  // place of a worker that is idle, while nothing waits: to hand it over would cost more.  0:
  // never.
  std::chrono::nanoseconds at_once{0};
  // Binds worker i to cpus[i % cpus.size()]; empty: the kernel decides.
  std::vector<int> cpus;
  // Called on the worker, or who stands in for it, after each piece of work, if set: how many jobs
  // and rows it had.  Must not block.
  std::function<void(int worker, int64_t jobs, int64_t rows)> on_batch;
};

// Thread-safe.  Nothing ever waits while a worker is idle.
class WorkerPool {
 public:
  // INTERNAL if a worker cannot restrict oneDNN to one thread or cannot be bound to its CPU.
  // `clock` is borrowed.  The threads run when this returns.  REQUIRES: numbers and times of
  // `options.queue` of at least 1.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(WorkerPoolOptions options,
                                                            const Clock& clock);
  // Drains, then joins the threads.
  ~WorkerPool();

  // Queues the job, or computes it at once if that costs less than to hand it over.  Never blocks
  // for long; any thread that holds no lock.  An error means that the job was not taken and that
  // none of its functions will be called: RESOURCE_EXHAUSTED (see refusal.h), UNAVAILABLE (shutting
  // down), DEADLINE_EXCEEDED or CANCELLED (too late already).
  absl::Status Submit(Job* job);
  // What Submit would answer now; the job is not taken.  For jobs that cost much before they can be
  // queued.
  absl::Status Check(Job* job);
  // Refuses new jobs from now on and returns when those that were taken have ended.  Not on a
  // worker thread.
  void Drain();
  SchedulerStats Stats() const;

 private:
  WorkerPool(WorkerPoolOptions options, const Clock& clock);
  void WorkerLoop(int index);
  // Reports whether the thread is what kernels need, before any work.
  void Started(const absl::Status& status);
  absl::Status PrepareThread(int index) const;
  // Whether who brings a cheap job may compute it: nobody is passed, and a worker would be idle.
  bool MayStandIn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for work; kNone: stop.  Meanwhile the worker gives back memory.
  JobQueue::Work Take(Worker& worker, std::vector<JobQueue::Dropped>& dropped);
  // Computes one piece, and what follows at once.  Whoever submitted may not take an exception of
  // it for one of Submit.
  void Compute(Worker& worker, JobQueue::Work work,
               std::vector<JobQueue::Dropped>& dropped) noexcept;
  // It has computed for so long, and is done; a stand-in is given back.
  void Free(Worker& worker, std::chrono::nanoseconds computed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropAll(std::vector<JobQueue::Dropped>& dropped);

  const WorkerPoolOptions options_;
  const Clock& clock_;
  // Lent to threads that compute what they submit; one per worker, none if `at_once` is 0.
  std::vector<std::unique_ptr<Worker>> all_stand_ins_;

  mutable Mutex mu_;
  CondVar work_;  // There is work, or stopping.
  CondVar idle_;  // Nothing is in hand, or a worker has started.
  JobQueue queue_ ABSL_GUARDED_BY(mu_);
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  int waiting_ ABSL_GUARDED_BY(mu_) = 0;  // Workers in work_.Wait.
  int started_ ABSL_GUARDED_BY(mu_) = 0;
  // Those that are not lent.
  std::vector<Worker*> stand_ins_ ABSL_GUARDED_BY(mu_);
  int64_t dropping_ ABSL_GUARDED_BY(mu_) = 0;  // Dropped jobs that are not told yet.
  absl::Status start_status_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  SchedulerStats totals_ ABSL_GUARDED_BY(mu_);

  std::vector<std::thread> threads_;  // Last: they use everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_WORKER_POOL_H_
