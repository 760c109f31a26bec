// Schedulers for the simulator.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/sim_policies.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

#include "server/scheduler/job_queue.h"

namespace ulfd::bench {
namespace {

using server::Job;
using server::JobQueue;
using server::Lane;
using server::TimePoint;
using std::chrono::nanoseconds;

// Handing a tile to a worker.
constexpr double kTileOverheadNs = 3e3;

class SimJob final : public Job {
 public:
  SimJob(const SimRequest& request, int index, std::shared_ptr<Lane> lane)
      : index(index), request_(request), lane_(std::move(lane)) {}
  const std::shared_ptr<Lane>& lane() const override { return lane_; }
  const std::string& client() const override { return client_; }
  int64_t rows() const override { return request_.rows; }
  TimePoint deadline() const override { return TimePoint(nanoseconds(request_.deadline_ns)); }
  bool divisible() const override { return true; }
  bool cancelled() const override { return false; }
  // The simulator does what workers would.
  void RunTogether(server::Worker&, absl::Span<Job* const>) override {}
  bool Begin(server::Worker&) override { return true; }
  int64_t held_bytes() const override { return 0; }
  void RunRows(server::Worker&, int64_t, int64_t) override {}
  void End(server::Worker&) override {}
  void Drop(const absl::Status&) override {}

  const int index;
  int64_t took_ns = 0;  // All pieces.

 private:
  const SimRequest request_;
  const std::shared_ptr<Lane> lane_;
  const std::string client_;
};

class OurPolicy final : public SimPolicy {
 public:
  OurPolicy(const SimMachine& machine, const std::vector<SimRequest>& requests)
      : cost_(machine.cost),
        requests_(requests),
        lane_(std::make_shared<Lane>("model", Lane::Limits{})),
        queue_({.workers = machine.workers, .max_queued_requests = machine.max_queued_requests}) {}

  bool Arrive(int request, int64_t now_ns) override {
    auto job = std::make_unique<SimJob>(requests_[request], request, lane_);
    if (!queue_.Admit(job.get(), At(now_ns)).ok()) return false;
    jobs_.emplace(job.get(), std::move(job));
    return true;
  }

  std::optional<SimPiece> Take(int idle, int64_t now_ns) override {
    JobQueue::Work work = queue_.Take(At(now_ns), idle, dropped_);
    if (work.kind == JobQueue::Work::Kind::kNone) return std::nullopt;
    SimPiece piece{.id = next_id_++};
    switch (work.kind) {
      case JobQueue::Work::Kind::kTogether:
        piece.cost_ns = cost_.Of(static_cast<int64_t>(work.jobs.size()), work.end);
        break;
      case JobQueue::Work::Kind::kBegin:
        piece.cost_ns = cost_.Of(1, 0);
        break;
      default:
        piece.cost_ns = kTileOverheadNs + cost_.row_ns * static_cast<double>(work.end - work.begin);
    }
    running_.emplace(piece.id, std::move(work));
    return piece;
  }

  void Done(const SimPiece& piece, int64_t took_ns, int64_t, std::vector<int>& ended) override {
    const auto it = running_.find(piece.id);
    const JobQueue::Work work = std::move(it->second);
    running_.erase(it);
    const bool together = work.kind == JobQueue::Work::Kind::kTogether;
    if (together) {
      lane_->cost().Observe(static_cast<int64_t>(work.jobs.size()), work.end, nanoseconds(took_ns));
    } else {
      Of(work.jobs[0]).took_ns += took_ns;
    }
    const JobQueue::Work next = queue_.Done(work, true, nanoseconds(took_ns), dropped_);
    if (together) {
      for (Job* job : work.jobs) End(job, ended);
    }
    if (next.kind != JobQueue::Work::Kind::kEnd) return;
    queue_.Done(next, true, nanoseconds(0), dropped_);
    lane_->cost().Observe(1, next.jobs[0]->rows(), nanoseconds(Of(next.jobs[0]).took_ns));
    End(next.jobs[0], ended);
  }

  void TakeDropped(std::vector<int>& dropped) override {
    for (const JobQueue::Dropped& drop : dropped_) End(drop.job, dropped);
    dropped_.clear();
  }

 private:
  static TimePoint At(int64_t ns) { return TimePoint(nanoseconds(ns)); }
  static SimJob& Of(Job* job) { return static_cast<SimJob&>(*job); }
  void End(Job* job, std::vector<int>& ended) {
    ended.push_back(Of(job).index);
    jobs_.erase(job);
  }

  const TrueCost cost_;
  const std::vector<SimRequest>& requests_;
  const std::shared_ptr<Lane> lane_;
  std::unordered_map<Job*, std::unique_ptr<SimJob>> jobs_;
  JobQueue queue_;
  std::vector<JobQueue::Dropped> dropped_;
  std::unordered_map<int64_t, JobQueue::Work> running_;
  int64_t next_id_ = 0;
};

class FifoPolicy final : public SimPolicy {
 public:
  FifoPolicy(const SimMachine& machine, const std::vector<SimRequest>& requests)
      : machine_(machine), requests_(requests) {}

  bool Arrive(int request, int64_t) override {
    if (static_cast<int64_t>(queue_.size()) >= machine_.max_queued_requests) return false;
    queue_.push_back(request);
    return true;
  }
  std::optional<SimPiece> Take(int, int64_t) override {
    if (queue_.empty()) return std::nullopt;
    const int request = queue_.front();
    queue_.pop_front();
    return SimPiece{.id = request, .cost_ns = machine_.cost.Of(1, requests_[request].rows)};
  }
  void Done(const SimPiece& piece, int64_t, int64_t, std::vector<int>& ended) override {
    ended.push_back(static_cast<int>(piece.id));
  }

 private:
  const SimMachine machine_;
  const std::vector<SimRequest>& requests_;
  std::deque<int> queue_;
};

// What the two that form batches on arrival share.
class BatchPolicy : public SimPolicy {
 public:
  BatchPolicy(const SimMachine& machine, const std::vector<SimRequest>& requests)
      : machine_(machine), requests_(requests) {}

  bool Arrive(int request, int64_t now_ns) override {
    if (queued_ >= machine_.max_queued_requests) return false;
    const int64_t rows = requests_[request].rows;
    if (batches_.empty() || batches_.back().closed || batches_.back().rows + rows > kMaxRows) {
      if (!batches_.empty()) batches_.back().closed = true;
      batches_.push_back({.opened_ns = now_ns});
    }
    Batch& batch = batches_.back();
    batch.requests.push_back(request);
    batch.rows += rows;
    batch.closed = batch.rows >= kMaxRows;
    ++queued_;
    return true;
  }
  void Done(const SimPiece& piece, int64_t, int64_t now_ns, std::vector<int>& ended) override {
    const auto it = running_.find(piece.id);
    for (const int request : it->second.requests) ended.push_back(request);
    Finished(it->second, now_ns);
    running_.erase(it);
  }

 protected:
  static constexpr int64_t kMaxRows = 512;
  struct Batch {
    std::vector<int> requests;
    int64_t rows = 0;
    int64_t opened_ns = 0;
    bool closed = false;
  };
  SimPiece StartOldest() {
    Batch batch = std::move(batches_.front());
    batches_.pop_front();
    const auto users = static_cast<int64_t>(batch.requests.size());
    queued_ -= users;
    const SimPiece piece{.id = next_id_++, .cost_ns = machine_.cost.Of(users, batch.rows)};
    running_.emplace(piece.id, std::move(batch));
    return piece;
  }
  virtual void Finished(const Batch& batch, int64_t now_ns) {}

  const SimMachine machine_;
  const std::vector<SimRequest>& requests_;
  std::deque<Batch> batches_;
  std::unordered_map<int64_t, Batch> running_;

 private:
  int64_t queued_ = 0, next_id_ = 0;
};

class TimeoutPolicy final : public BatchPolicy {
 public:
  using BatchPolicy::BatchPolicy;
  std::optional<SimPiece> Take(int, int64_t now_ns) override {
    if (batches_.empty()) return std::nullopt;
    if (!batches_.front().closed && now_ns < batches_.front().opened_ns + kTimeoutNs) {
      return std::nullopt;
    }
    return StartOldest();
  }
  int64_t NextTimer() const override {
    return batches_.empty() || batches_.front().closed ? INT64_MAX
                                                       : batches_.front().opened_ns + kTimeoutNs;
  }

 private:
  static constexpr int64_t kTimeoutNs = 1'000'000;
};

class AdaptivePolicy final : public BatchPolicy {
 public:
  AdaptivePolicy(const SimMachine& machine, const std::vector<SimRequest>& requests)
      : BatchPolicy(machine, requests), limit_(machine.workers) {}

  std::optional<SimPiece> Take(int, int64_t) override {
    if (batches_.empty() || static_cast<double>(running_.size()) >= limit_) return std::nullopt;
    return StartOldest();
  }

 protected:
  void Finished(const Batch& batch, int64_t now_ns) override {
    for (const int request : batch.requests) {
      sum_ns_ += static_cast<double>(now_ns - requests_[request].arrival_ns);
      ++count_;
    }
    if (++batches_done_ % kWindow != 0) return;
    const double mean = sum_ns_ / static_cast<double>(count_);
    if (mean > last_mean_) step_ = -step_;
    last_mean_ = mean;
    limit_ = std::clamp(limit_ * (1 + step_), 1.0, static_cast<double>(machine_.workers));
    sum_ns_ = 0;
    count_ = 0;
  }

 private:
  static constexpr int64_t kWindow = 500;
  double limit_, step_ = -0.1, last_mean_ = 1e18, sum_ns_ = 0;
  int64_t count_ = 0, batches_done_ = 0;
};

}  // namespace

const std::vector<std::string>& PolicyNames() {
  static const auto& names = *new std::vector<std::string>{"ours", "fifo", "timeout", "adaptive"};
  return names;
}

std::unique_ptr<SimPolicy> MakePolicy(const std::string& name, const SimMachine& machine,
                                      const std::vector<SimRequest>& requests) {
  if (name == "ours") return std::make_unique<OurPolicy>(machine, requests);
  if (name == "timeout") return std::make_unique<TimeoutPolicy>(machine, requests);
  if (name == "adaptive") return std::make_unique<AdaptivePolicy>(machine, requests);
  return std::make_unique<FifoPolicy>(machine, requests);
}

}  // namespace ulfd::bench
