// CoDel over the time that requests wait: tells a burst, which passes, from a queue that stands.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_OVERLOAD_H_
#define ULFD_SERVER_SCHEDULER_OVERLOAD_H_

#include <algorithm>
#include <chrono>

#include "server/scheduler/clock.h"

namespace ulfd::server {

// While the oldest request has waited for longer than the target for a whole interval, the queue
// stands and only adds latency: newest first then, and what has waited for twice the target goes.
// (The idea is CoDel's, ACM Queue 10-5, 2012; the factor and newest-first are folly's.)  Where
// requests themselves take longer than the target, or callers are patient, target and interval grow
// with that: a queue of two slow requests is no overload.  Not thread-safe.
class OverloadDetector {
 public:
  OverloadDetector(std::chrono::nanoseconds target, std::chrono::nanoseconds interval)
      : target_(target), interval_(interval) {}

  // How long the oldest request has waited now (0 if none waits), and how long is all right for it.
  void Observe(std::chrono::nanoseconds oldest, std::chrono::nanoseconds takes, TimePoint now) {
    if (oldest <= Target(takes)) {
      above_ = overloaded_ = false;
      return;
    }
    if (!above_) above_since_ = now;
    above_ = true;
    const double scale =
        static_cast<double>(Target(takes).count()) / static_cast<double>(target_.count());
    overloaded_ = static_cast<double>((now - above_since_).count()) >=
                  scale * static_cast<double>(interval_.count());
  }

  bool overloaded() const { return overloaded_; }
  // Whether a request that has waited for so long is to be dropped.
  bool TooOld(std::chrono::nanoseconds waited, std::chrono::nanoseconds takes) const {
    return overloaded_ && waited > 2 * Target(takes);
  }

 private:
  std::chrono::nanoseconds Target(std::chrono::nanoseconds takes) const {
    return std::max(target_, takes);
  }

  const std::chrono::nanoseconds target_, interval_;
  TimePoint above_since_{};
  bool above_ = false;
  bool overloaded_ = false;
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_OVERLOAD_H_
