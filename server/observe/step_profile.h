// StepProfile: what the steps of a model take in calls, of which few are timed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_STEP_PROFILE_H_
#define ULFD_SERVER_OBSERVE_STEP_PROFILE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "engine/runtime/model.h"

namespace ulfd::server {

// Of one published content.  Thread-safe.
class StepProfile {
 public:
  // Means over the last calls, those before counting less and less.
  struct Means {
    int64_t calls = 0;       // Timed so far; 0: there are no means.
    bool optimised = false;  // Of which plan; the steps are its steps.
    double ads = 0;          // Per call, or per batch.
    std::vector<double> us;  // Per step.
  };

  // Whether a call of that time is to be timed: one in a second.
  bool Wants(std::chrono::steady_clock::time_point now) {
    const int64_t ns = std::chrono::nanoseconds(now.time_since_epoch()).count();
    int64_t next = next_ns_.load(std::memory_order_relaxed);
    return ns >= next &&
           next_ns_.compare_exchange_strong(next, ns + kEvery.count(), std::memory_order_relaxed);
  }
  // What such a call, or its batch, took.
  void Add(const engine::StepTimes& times, int64_t ads);
  Means means() const;

 private:
  static constexpr std::chrono::nanoseconds kEvery = std::chrono::seconds(1);
  std::atomic<int64_t> next_ns_{0};
  mutable Mutex mu_;
  Means means_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_STEP_PROFILE_H_
