// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/worker_pool.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/tensor/onednn.h"
#include "server/scheduler/refusal.h"

namespace ulfd::server {

namespace {

using Work = JobQueue::Work;

// How often a worker looks whether it holds memory that it has not used since.
constexpr std::chrono::milliseconds kShrinkInterval(500);
// What computes cheap calls needs less.
constexpr int64_t kStandInKeeps = int64_t{4} << 20;

}  // namespace

WorkerPool::WorkerPool(WorkerPoolOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), queue_(options_.queue) {
  for (int i = 0; options_.at_once.count() > 0 && i < options_.queue.workers; ++i) {
    Worker& worker = *all_stand_ins_.emplace_back(std::make_unique<Worker>());
    worker.index = i;
    worker.stands_in = true;
    stand_ins_.push_back(&worker);
  }
}

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(WorkerPoolOptions options,
                                                               const Clock& clock) {
  const int workers = options.queue.workers;
  auto pool = std::unique_ptr<WorkerPool>(new WorkerPool(std::move(options), clock));
  for (int i = 0; i < workers; ++i) {
    pool->threads_.emplace_back([p = pool.get(), i] { p->WorkerLoop(i); });
  }
  absl::Status status;
  {
    MutexLock lock(pool->mu_);
    while (pool->started_ < workers) pool->idle_.Wait(pool->mu_);
    status = pool->start_status_;
  }
  RETURN_IF_ERROR(status);
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

absl::Status WorkerPool::Submit(Job* job) {
  const TimePoint now = clock_.Now();
  Worker* stand_in = nullptr;
  Work work;
  {
    MutexLock lock(mu_);
    if (draining_) return ShuttingDown();
    if (MayStandIn()) {
      RETURN_IF_ERROR(queue_.AdmitTaken(job, now, options_.at_once, work));
    } else {
      RETURN_IF_ERROR(queue_.Admit(job, now));
    }
    if (work.kind != Work::Kind::kNone) {
      stand_in = stand_ins_.back();
      stand_ins_.pop_back();
      ++busy_;
      ++totals_.at_once;
    }
  }
  if (stand_in == nullptr) {
    work_.NotifyOne();
    return absl::OkStatus();
  }
  engine::UseOneThread();
  std::vector<JobQueue::Dropped> dropped;
  Compute(*stand_in, std::move(work), dropped);  // One whole job: none is dropped.
  return absl::OkStatus();
}

absl::Status WorkerPool::Check(Job* job) {
  const TimePoint now = clock_.Now();
  MutexLock lock(mu_);
  return draining_ ? ShuttingDown() : queue_.Check(job, now);
}

bool WorkerPool::MayStandIn() const {
  return !stand_ins_.empty() && busy_ < options_.queue.workers && !queue_.HasWork();
}

absl::Status WorkerPool::PrepareThread(int index) const {
  engine::UseOneThread();
  if (!engine::UsesOneThread()) {
    return Internal("worker pool: OpenMP does not honour one thread per worker");
  }
  pthread_setname_np(pthread_self(), "ulfd-worker");
  if (options_.cpus.empty()) return absl::OkStatus();
  const int cpu = options_.cpus[static_cast<size_t>(index) % options_.cpus.size()];
  const size_t size = CPU_ALLOC_SIZE(cpu + 1);
  cpu_set_t* set = CPU_ALLOC(cpu + 1);
  CPU_ZERO_S(size, set);
  CPU_SET_S(cpu, size, set);
  const int error = pthread_setaffinity_np(pthread_self(), size, set);
  CPU_FREE(set);
  if (error == 0) return absl::OkStatus();
  return Internal("worker pool: cannot bind worker ", index, " to CPU ", cpu, ": ",
                  std::strerror(error));
}

void WorkerPool::Started(const absl::Status& status) {
  MutexLock lock(mu_);
  ++started_;
  if (!status.ok()) start_status_ = status;
  idle_.NotifyAll();
}

Work WorkerPool::Take(Worker& worker, std::vector<JobQueue::Dropped>& dropped) {
  bool yielded = false, shrinks = true;
  MutexLock lock(mu_);
  for (;;) {
    Work work = queue_.Take(clock_.Now(), waiting_, dropped);
    dropping_ += static_cast<int64_t>(dropped.size());
    if (work.kind != Work::Kind::kNone) {
      ++busy_;
      // This worker may have been woken for several jobs.
      if (waiting_ > 0 && queue_.HasWork()) work_.NotifyOne();
      return work;
    }
    if (!dropped.empty() || stopping_) return work;
    if (!yielded) {
      // Going to sleep and being woken up costs more than a small request: whoever has the next one
      // in hand on this CPU brings it first.
      yielded = true;
      mu_.Unlock();
      sched_yield();
      mu_.Lock();
      continue;
    }
    yielded = false;
    ++waiting_;
    bool woken = true;
    if (shrinks) {
      woken = work_.WaitUntil(mu_, std::chrono::steady_clock::now() + kShrinkInterval);
    } else {
      work_.Wait(mu_);
    }
    --waiting_;
    if (woken) continue;
    mu_.Unlock();
    shrinks = worker.workspace.Shrink();
    mu_.Lock();
  }
}

void WorkerPool::DropAll(std::vector<JobQueue::Dropped>& dropped) {
  if (dropped.empty()) return;
  for (const JobQueue::Dropped& drop : dropped) drop.job->Drop(drop.why);
  MutexLock lock(mu_);
  dropping_ -= static_cast<int64_t>(dropped.size());
  dropped.clear();
  if (queue_.empty() && dropping_ == 0) idle_.NotifyAll();
}

void WorkerPool::Compute(Worker& worker, Work work,
                         std::vector<JobQueue::Dropped>& dropped) noexcept {
  const TimePoint begin = clock_.Now();
  bool alive = true;
  int64_t rows = 0;
  switch (work.kind) {
    case Work::Kind::kTogether:
      rows = work.end;
      work.jobs.front()->RunTogether(worker, work.jobs);
      break;
    case Work::Kind::kBegin:
      alive = work.jobs.front()->Begin(worker);
      break;
    case Work::Kind::kRows:
      rows = work.end - work.begin;
      work.jobs.front()->RunRows(worker, work.begin, work.end);
      break;
    default:
      break;
  }
  if (rows > 0 && options_.on_batch) {
    options_.on_batch(worker.index, static_cast<int64_t>(work.jobs.size()), rows);
  }
  const TimePoint end = clock_.Now();
  if (worker.stands_in) {
    if (worker.workspace.bytes() > kStandInKeeps) worker.workspace = engine::Workspace();
  } else if (end - worker.shrunk >= kShrinkInterval) {
    worker.workspace.Shrink();
    worker.shrunk = end;
  }
  Work next;
  bool more = false;
  {
    MutexLock lock(mu_);
    next = queue_.Done(work, alive, end - begin, dropped);
    dropping_ += static_cast<int64_t>(dropped.size());
    if (rows > 0) {
      ++totals_.batches;
      totals_.rows += rows;
    }
    more = work.kind == Work::Kind::kBegin && waiting_ > 0;
    if (next.kind != Work::Kind::kEnd) Free(worker, end - begin);
  }
  if (more) work_.NotifyAll();  // The rows of a large job are for everybody.
  if (next.kind != Work::Kind::kEnd) return;
  next.jobs.front()->End(worker);
  const TimePoint over = clock_.Now();
  MutexLock lock(mu_);
  queue_.Done(next, true, over - end, dropped);
  Free(worker, over - begin);
}

void WorkerPool::Free(Worker& worker, std::chrono::nanoseconds computed) {
  --busy_;
  totals_.busy += computed;
  if (worker.stands_in) stand_ins_.push_back(&worker);
  if (queue_.empty() && dropping_ == 0) idle_.NotifyAll();
}

void WorkerPool::WorkerLoop(int index) {
  const absl::Status ready = PrepareThread(index);
  Started(ready);
  Worker worker;
  worker.index = index;
  std::vector<JobQueue::Dropped> dropped;
  for (;;) {
    Work work = Take(worker, dropped);
    if (work.kind == Work::Kind::kNone && dropped.empty()) return;
    // Those who are told "no" are told before anybody computes.
    DropAll(dropped);
    if (work.kind == Work::Kind::kNone) continue;
    Compute(worker, std::move(work), dropped);
    DropAll(dropped);
  }
}

void WorkerPool::Drain() {
  MutexLock lock(mu_);
  draining_ = true;
  while (!queue_.empty() || dropping_ > 0 || busy_ > 0) idle_.Wait(mu_);
}

SchedulerStats WorkerPool::Stats() const {
  MutexLock lock(mu_);
  SchedulerStats stats = totals_;
  stats.workers = options_.queue.workers;
  stats.busy_workers = busy_;
  stats.queued_requests = queue_.queued_requests();
  stats.queued_rows = queue_.queued_rows();
  stats.pending = queue_.pending();
  stats.overloaded = queue_.overloaded();
  return stats;
}

}  // namespace ulfd::server
