// CoDel over the time that requests wait: tells a burst, which passes, from a queue that stands.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_OVERLOAD_H_
#define ULFD_SERVER_SCHEDULER_OVERLOAD_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "server/scheduler/clock.h"

namespace ulfd::server {

// A condition that counts once it has held for a while, and until it has not held for another
// while.
class Lasting {
 public:
  void Observe(bool holds, std::chrono::nanoseconds until_on, std::chrono::nanoseconds until_off,
               TimePoint now) {
    if (holds == on_) {
      turning_ = false;
      return;
    }
    if (!turning_) since_ = now;
    turning_ = now - since_ < (holds ? until_on : until_off);
    if (!turning_) on_ = holds;
  }
  bool on() const { return on_; }

 private:
  bool on_ = false;
  bool turning_ = false;  // The condition is not what `on_` says, since `since_`.
  TimePoint since_{};
};

// While the oldest request has waited for longer than the target for a whole interval, the queue
// stands and only adds latency.  Newcomers are then told so at once, unless little is ahead of
// them: those who are taken get served, and those who are not can still go elsewhere.  That rests
// on predictions.  If the oldest nevertheless waits for twice the target for a whole interval, the
// newest go first and what has waited for so long is dropped.  (The idea is CoDel's, ACM Queue
// 10-5, 2012; the factor 2 and newest-first are folly's.)  Where requests themselves take longer
// than the target, or callers are patient, target and interval grow with that: a queue of two slow
// requests is no overload.  Not thread-safe.
class OverloadDetector {
 public:
  OverloadDetector(std::chrono::nanoseconds target, std::chrono::nanoseconds interval)
      : target_(target), interval_(interval) {}

  // How long the oldest request has waited now (0 if none waits), and how long is all right for it.
  void Observe(std::chrono::nanoseconds oldest, std::chrono::nanoseconds takes, TimePoint now) {
    const std::chrono::nanoseconds target = Target(takes);
    const double scale = static_cast<double>(target.count()) / static_cast<double>(target_.count());
    const std::chrono::nanoseconds interval(
        static_cast<int64_t>(scale * static_cast<double>(interval_.count())));
    stands_.Observe(oldest > target, interval, interval, now);
    late_.Observe(oldest > 2 * target, interval, std::chrono::nanoseconds(0), now);
  }

  // The queue stands.  Always so where the newest go first: what is longer than twice the target is
  // longer than the target.
  bool overloaded() const { return stands_.on(); }
  // Whether a newcomer that is predicted to wait for so long is to be refused.  Less than what gets
  // dropped: predictions are means.
  bool TooLong(std::chrono::nanoseconds wait, std::chrono::nanoseconds takes) const {
    return stands_.on() && 2 * wait > 3 * Target(takes);
  }
  bool newest_first() const { return late_.on(); }
  // Whether a request that has waited for so long is to be dropped.
  bool TooOld(std::chrono::nanoseconds waited, std::chrono::nanoseconds takes) const {
    return late_.on() && waited > 2 * Target(takes);
  }

 private:
  std::chrono::nanoseconds Target(std::chrono::nanoseconds takes) const {
    return std::max(target_, takes);
  }

  const std::chrono::nanoseconds target_, interval_;
  Lasting stands_, late_;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_OVERLOAD_H_
