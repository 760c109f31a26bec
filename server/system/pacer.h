// Pacer: spreads what a background thread computes over time.
//
// A low priority is not enough: while calls leave a CPU idle such a thread has it whole, and the
// calls on the CPUs beside it share caches, memory and often the core with it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SYSTEM_PACER_H_
#define ULFD_SERVER_SYSTEM_PACER_H_

#include <chrono>

namespace ulfd::server {

// Used by one thread, the one that makes it.
class Pacer {
 public:
  // The thread is to compute for at most this part of the time, 0 < share <= 1; 1: without pauses.
  explicit Pacer(double share);

  // To be called often: sleeps for what has been computed since it slept last.
  void Pace();

 private:
  const double pause_per_work_;
  std::chrono::nanoseconds rested_at_;  // CPU time of the thread.
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SYSTEM_PACER_H_
