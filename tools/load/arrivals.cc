// SPDX-License-Identifier: Apache-2.0
#include "tools/load/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/load/random.h"

namespace ulfd::tools {
namespace {

int64_t ToNs(double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); }

}  // namespace

Arrivals ConstantArrivals(double per_second) {
  return
      [=, count = int64_t{0}]() mutable { return ToNs(static_cast<double>(count++) / per_second); };
}

Arrivals PoissonArrivals(double per_second, uint64_t seed) {
  return [=, random = Random(seed), seconds = 0.0]() mutable {
    return ToNs(seconds += random.Exponential() / per_second);
  };
}

// A Poisson process of rate 1 on an axis that is stretched where the rate is low.
Arrivals BurstArrivals(double per_second, const Bursts& bursts, uint64_t seed) {
  const double share = bursts.length_s / bursts.period_s;
  const double pause_rate = per_second / (1 + (bursts.factor - 1) * share);
  const double burst_rate = pause_rate * bursts.factor;
  // A period begins with its pause.
  const double pause_s = bursts.period_s - bursts.length_s;
  const double pause_work = pause_rate * pause_s;
  const double period_work = pause_work + burst_rate * bursts.length_s;
  return [=, random = Random(seed), work = 0.0, last = int64_t{0}]() mutable {
    work += random.Exponential();
    const double periods = std::floor(work / period_work);
    const double rest = work - periods * period_work;
    const double within =
        rest < pause_work ? rest / pause_rate : pause_s + (rest - pause_work) / burst_rate;
    return last = std::max(last, ToNs(periods * bursts.period_s + within));
  };
}

Arrivals RecordedArrivals(std::vector<int64_t> times_ns, double speed, bool repeat) {
  if (times_ns.empty()) return [] { return std::nullopt; };
  const int64_t length = times_ns.back() - times_ns.front();
  const auto gaps = static_cast<int64_t>(times_ns.size()) - 1;
  // A single call has no gap: a second is as good as any.
  const int64_t period = gaps == 0 ? ToNs(1) : length + length / gaps;
  return [=, times = std::move(times_ns), next = size_t{0},
          offset = int64_t{0}]() mutable -> std::optional<int64_t> {
    if (next == times.size()) {
      if (!repeat) return std::nullopt;
      next = 0;
      offset += period;
    }
    const int64_t at = times[next++] - times.front() + offset;
    return static_cast<int64_t>(std::llround(static_cast<double>(at) / speed));
  };
}

}  // namespace ulfd::tools
