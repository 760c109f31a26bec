// When calls are to be sent: an open loop, in which a slow server does not slow the callers down.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_LOAD_ARRIVALS_H_
#define ULFD_TOOLS_LOAD_ARRIVALS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace ulfd::tools {

// The next time, in nanoseconds since the start; never less than the one before; nothing: that was
// all.  Not thread-safe.
using Arrivals = std::function<std::optional<int64_t>()>;

// Exactly every 1 / rate seconds.  REQUIRES: per_second > 0.
Arrivals ConstantArrivals(double per_second);

// Independent callers: exponential gaps.  REQUIRES: per_second > 0.
Arrivals PoissonArrivals(double per_second, uint64_t seed);

// Independent callers who come in crowds: every `period_s` the rate is `factor` times as high for
// `length_s`.
struct Bursts {
  double factor = 5;      // >= 1
  double period_s = 1;    // > 0
  double length_s = 0.1;  // In (0, period_s)
};
// `per_second` is the mean over bursts and pauses.
Arrivals BurstArrivals(double per_second, const Bursts& bursts, uint64_t seed);

// The gaps between `times_ns` (ascending) divided by `speed` (> 0), beginning at 0.  `repeat`: over
// and over, with the mean gap between the last one and the first.
Arrivals RecordedArrivals(std::vector<int64_t> times_ns, double speed, bool repeat);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_LOAD_ARRIVALS_H_
