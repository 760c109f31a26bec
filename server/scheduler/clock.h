// The time, as the server's threads see it: injected, so that tests decide what time it is.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_CLOCK_H_
#define ULFD_SERVER_SCHEDULER_CLOCK_H_

#include <chrono>

namespace ulfd::server {

using TimePoint = std::chrono::steady_clock::time_point;

// Any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_CLOCK_H_
