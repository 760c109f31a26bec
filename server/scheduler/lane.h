// Lane: a model generation, as the scheduler sees it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_LANE_H_
#define ULFD_SERVER_SCHEDULER_LANE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "server/scheduler/cost_model.h"

namespace ulfd::server {

// Owned by the generation and by the queue as long as it has jobs of it.  The members that the
// queue keeps are guarded by whatever guards the queue; everything else is thread-safe.
class Lane {
 public:
  struct Limits {
    int64_t max_queued_rows = INT64_MAX;  // Of this generation; on top of the server's limit.
    double weight = 1;                    // Share of the workers beside other busy lanes; > 0.
    bool operator==(const Limits&) const = default;
  };
  // Products over fewer rows run at a fraction of their speed.
  static constexpr int64_t kPieceRows = 16;

  // `guess`: what a call costs until runs tell, such as what the generation before had learned.
  // `piece_rows`: what is cut has at least so many rows per piece.
  Lane(std::string name, const Limits& limits, const CostModel::Parts& guess = CostModel::kGuess,
       int64_t piece_rows = kPieceRows)
      : name_(std::move(name)),
        piece_rows_(piece_rows),
        max_queued_rows_(limits.max_queued_rows),
        weight_(limits.weight),
        cost_(guess) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& name() const { return name_; }  // For messages: the model's name.
  int64_t piece_rows() const { return piece_rows_; }
  int64_t max_queued_rows() const { return max_queued_rows_.load(std::memory_order_relaxed); }
  double weight() const { return weight_.load(std::memory_order_relaxed); }
  // For what is queued and handed out from now on.
  void SetLimits(const Limits& limits) {
    max_queued_rows_.store(limits.max_queued_rows, std::memory_order_relaxed);
    weight_.store(limits.weight, std::memory_order_relaxed);
  }
  CostModel& cost() { return cost_; }
  const CostModel& cost() const { return cost_; }

  // Whether jobs are worth merging: not while the model computes one user at a time.
  bool merges() const { return merges_.load(std::memory_order_relaxed); }
  void SetMerges(bool merges) { merges_.store(merges, std::memory_order_relaxed); }

 private:
  friend class JobQueue;
  const std::string name_;
  const int64_t piece_rows_;
  std::atomic<int64_t> max_queued_rows_;
  std::atomic<double> weight_;
  CostModel cost_;
  std::atomic<bool> merges_{true};
  int64_t queued_rows_ = 0;  // Of jobs that nobody has started.
  int64_t jobs_ = 0;         // In the queue's hands.
  int64_t held_bytes_ = 0;   // By jobs that have begun.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_LANE_H_
