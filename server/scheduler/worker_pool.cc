// WorkerPool: admission, the worker loop and draining.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/worker_pool.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/tensor/onednn.h"

namespace ulfd::server {

WorkerPool::WorkerPool(const WorkerPoolOptions& options, const Clock& clock)
    : options_(options), clock_(clock) {}

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(const WorkerPoolOptions& options,
                                                               const Clock& clock) {
  if (options.workers < 1 || options.max_queued_requests < 1 || options.max_queued_rows < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker pool: workers ", options.workers, ", max_queued_requests ",
                     options.max_queued_requests, ", max_queued_rows ", options.max_queued_rows,
                     ", want at least 1 of each"));
  }
  auto pool = std::unique_ptr<WorkerPool>(new WorkerPool(options, clock));
  for (int i = 0; i < options.workers; ++i) {
    pool->threads_.emplace_back([p = pool.get(), i] { p->WorkerLoop(i); });
  }
  absl::Status started;
  {
    MutexLock lock(pool->mu_);
    while (pool->started_ < options.workers) pool->idle_.Wait(pool->mu_);
    started = pool->start_status_;
  }
  RETURN_IF_ERROR(started);
  return pool;
}

WorkerPool::~WorkerPool() {
  Drain();
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status WorkerPool::Admit(const Task& task, TimePoint now) {
  if (draining_) return absl::UnavailableError("draining: the server is shutting down");
  if (task.deadline() <= now) {
    return absl::DeadlineExceededError("the deadline had passed when the call arrived");
  }
  const int64_t requests = static_cast<int64_t>(queue_.size());
  // A worker that is idle, or about to wake up, takes the task at once: it does not count as
  // waiting.
  if (requests < options_.workers - busy_) return absl::OkStatus();
  if (requests + 1 > options_.max_queued_requests) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "queue_full: ", requests, " requests wait, limit ", options_.max_queued_requests));
  }
  if (queued_rows_ + task.rows() > options_.max_queued_rows) {
    return absl::ResourceExhaustedError(absl::StrCat("queue_full: ", queued_rows_,
                                                     " ads wait and this request has ", task.rows(),
                                                     ", limit ", options_.max_queued_rows));
  }
  return absl::OkStatus();
}

absl::Status WorkerPool::Submit(Task* task) {
  if (task->cancelled()) return absl::CancelledError("the caller went away");
  const TimePoint now = clock_.Now();
  {
    MutexLock lock(mu_);
    RETURN_IF_ERROR(Admit(*task, now));
    queued_rows_ += task->rows();
    queue_.push_back(task);
  }
  work_.NotifyOne();
  return absl::OkStatus();
}

Task* WorkerPool::Take() {
  MutexLock lock(mu_);
  while (queue_.empty() && !stopping_) work_.Wait(mu_);
  if (queue_.empty()) return nullptr;
  Task* task = queue_.front();
  queue_.pop_front();
  queued_rows_ -= task->rows();
  ++busy_;
  return task;
}

absl::Status WorkerPool::StillWanted(const Task& task, TimePoint now) const {
  if (task.deadline() <= now) {
    return absl::DeadlineExceededError("the deadline passed while the request waited for a worker");
  }
  if (task.cancelled()) return absl::CancelledError("the caller went away");
  return absl::OkStatus();
}

absl::Status WorkerPool::PrepareThread(int index) const {
  engine::UseOneThread();
  if (!engine::UsesOneThread()) {
    return absl::InternalError("worker pool: OpenMP does not honour one thread per worker");
  }
  if (options_.cpus.empty()) return absl::OkStatus();
  const int cpu = options_.cpus[static_cast<size_t>(index) % options_.cpus.size()];
  const size_t size = CPU_ALLOC_SIZE(cpu + 1);
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  CPU_ZERO_S(size, set);
  CPU_SET_S(cpu, size, set);
  const int error = pthread_setaffinity_np(pthread_self(), size, set);
  CPU_FREE(set);
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("worker pool: cannot bind worker ", index, " to CPU ",
                                          cpu, ": ", std::strerror(error)));
}

void WorkerPool::WorkerLoop(int index) {
  const absl::Status prepared = PrepareThread(index);
  {
    MutexLock lock(mu_);
    ++started_;
    start_status_.Update(prepared);
    idle_.NotifyAll();
  }
  Worker worker;
  worker.index = index;
  while (Task* task = Take()) {
    const TimePoint begin = clock_.Now();
    const absl::Status wanted = StillWanted(*task, begin);
    if (wanted.ok()) {
      task->Run(worker);
    } else {
      task->Drop(wanted);
    }
    // The task may be gone: only `wanted` tells what happened.
    MutexLock lock(mu_);
    --busy_;
    if (wanted.ok()) {
      busy_time_ += clock_.Now() - begin;
    } else if (absl::IsCancelled(wanted)) {
      ++cancelled_;
    } else {
      ++expired_;
    }
    if (busy_ == 0 && queue_.empty()) idle_.NotifyAll();
  }
}

void WorkerPool::Drain() {
  MutexLock lock(mu_);
  draining_ = true;
  while (busy_ > 0 || !queue_.empty()) idle_.Wait(mu_);
}

SchedulerStats WorkerPool::Stats() const {
  MutexLock lock(mu_);
  return {.workers = options_.workers,
          .busy_workers = busy_,
          .queued_requests = static_cast<int64_t>(queue_.size()),
          .queued_rows = queued_rows_,
          .expired = expired_,
          .cancelled = cancelled_,
          .busy = busy_time_};
}

}  // namespace ulfd::server
