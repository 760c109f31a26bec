// WorkerPool: a bounded first-in-first-out queue and N threads that score, one task each at a time.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_WORKER_POOL_H_
#define ULFD_SERVER_SCHEDULER_WORKER_POOL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/tensor/mutex.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/scheduler.h"

namespace ulfd::server {

struct WorkerPoolOptions {
  int workers = 1;                     // >= 1
  int64_t max_queued_requests = 1000;  // Tasks that wait; those that run do not count.  >= 1
  int64_t max_queued_rows = 200000;    // Their rows together.  >= 1
  // Binds worker i to cpus[i % cpus.size()]; empty: the kernel decides.
  std::vector<int> cpus;
};

// Thread-safe.  An idle worker takes a task at once: nothing ever waits while a worker is idle.
class WorkerPool final : public Scheduler {
 public:
  // INVALID_ARGUMENT for options out of range; INTERNAL if a worker cannot restrict oneDNN to one
  // thread or cannot be bound to its CPU.  `clock` is borrowed.  The threads run when this returns.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(const WorkerPoolOptions& options,
                                                            const Clock& clock);
  // Drains, then joins the threads.
  ~WorkerPool() override;

  absl::Status Submit(Task* task) override;
  void Drain() override;
  SchedulerStats Stats() const override;

 private:
  WorkerPool(const WorkerPoolOptions& options, const Clock& clock);
  void WorkerLoop(int index);
  // Makes the calling thread what kernels need.
  absl::Status PrepareThread(int index) const;
  // Waits for a task; null: stop.
  Task* Take();
  absl::Status Admit(const Task& task, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // OK: run it.
  absl::Status StillWanted(const Task& task, TimePoint now) const;

  const WorkerPoolOptions options_;
  const Clock& clock_;

  mutable Mutex mu_;
  CondVar work_;  // A task came, or stopping.
  CondVar idle_;  // The queue is empty and no worker is busy, or a worker has started.
  std::deque<Task*> queue_ ABSL_GUARDED_BY(mu_);
  int64_t queued_rows_ ABSL_GUARDED_BY(mu_) = 0;
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  int started_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status start_status_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t expired_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t cancelled_ ABSL_GUARDED_BY(mu_) = 0;
  std::chrono::nanoseconds busy_time_ ABSL_GUARDED_BY(mu_){0};

  std::vector<std::thread> threads_;  // Last: they use everything above.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_WORKER_POOL_H_
