// Fakes for tests of the server.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_FAKES_H_
#define ULFD_TESTS_TESTING_FAKES_H_

#include <atomic>
#include <chrono>

#include "server/scheduler/clock.h"

namespace ulfd::server {

// Stands still until it is told to advance.  Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(std::chrono::nanoseconds(now_ns_.load())); }
  void Advance(std::chrono::nanoseconds by) { now_ns_.fetch_add(by.count()); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace ulfd::server

#endif  // ULFD_TESTS_TESTING_FAKES_H_
