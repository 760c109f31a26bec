// When calls are to be sent: an open loop, in which a slow server does not slow the callers down.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_ARRIVALS_H_
#define ULFD_TOOLS_LOAD_ARRIVALS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/load/random.h"

namespace ulfd::tools {

// A sequence of times.  Not thread-safe.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  // The next time, in nanoseconds since the start; never less than the one before; nothing: that
  // was all.
  virtual std::optional<int64_t> Next() = 0;
};

// Exactly every 1 / rate seconds.  REQUIRES: per_second > 0.
std::unique_ptr<Arrivals> ConstantArrivals(double per_second);

// Independent callers: exponential gaps.  REQUIRES: per_second > 0.
std::unique_ptr<Arrivals> PoissonArrivals(double per_second, uint64_t seed);

// Independent callers who come in crowds: every `period_s` the rate is `factor` times as high for
// `length_s`.
struct Bursts {
  double factor = 5;      // >= 1
  double period_s = 1;    // > 0
  double length_s = 0.1;  // In (0, period_s)
};
// `per_second` is the mean over bursts and pauses.
std::unique_ptr<Arrivals> BurstArrivals(double per_second, const Bursts& bursts, uint64_t seed);

// The gaps between `times_ns` (ascending) divided by `speed` (> 0), beginning at 0.  `repeat`: over
// and over, with the mean gap between the last one and the first.
std::unique_ptr<Arrivals> RecordedArrivals(std::vector<int64_t> times_ns, double speed,
                                           bool repeat);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_ARRIVALS_H_
