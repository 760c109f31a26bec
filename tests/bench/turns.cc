// Timing programs in turns.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/turns.h"

#include <time.h>

#include <algorithm>
#include <cstdint>

#include "base/status_macros.h"
#include "benchmark/benchmark.h"
#include "engine/tensor/fma_peak.h"

namespace ulfd::bench {
namespace {

// Seconds of `calls` calls.
absl::StatusOr<double> Stretch(const Contender& contender, int64_t calls, bool wall) {
  const double begin = Now(wall);
  for (int64_t i = 0; i < calls; ++i) RETURN_IF_ERROR(contender.run());
  return Now(wall) - begin;
}

// Calls in a stretch of 1 ms or more: reading the clock takes up to 1 us, and fetching back into
// the near caches what the other contenders drove out some 20 us.
absl::StatusOr<int64_t> CallsPerStretch(const Contender& contender, bool wall) {
  constexpr double kSeconds = 1e-3;
  for (int64_t calls = 1;; calls *= 2) {
    ASSIGN_OR_RETURN(const double took, Stretch(contender, calls, wall));
    if (took >= kSeconds) return calls;
  }
}

// One turn: stretches of all contenders one after the other, until each has had its time.  Per
// contender the median of its stretches, in seconds per call.
absl::StatusOr<std::vector<double>> Turn(absl::Span<const Contender> contenders,
                                         absl::Span<const int64_t> calls,
                                         const TurnsOptions& options) {
  std::vector<std::vector<double>> stretches(contenders.size());
  double least = 0;
  do {
    double shortest = options.seconds;
    for (size_t c = 0; c < contenders.size(); ++c) {
      ASSIGN_OR_RETURN(const double took, Stretch(contenders[c], calls[c], options.wall));
      stretches[c].push_back(took / static_cast<double>(calls[c]));
      shortest = std::min(shortest, took);
    }
    least += shortest;
  } while (least < options.seconds);
  std::vector<double> medians;
  for (std::vector<double>& each : stretches) {
    medians.push_back(SpreadOf(std::move(each)).median);
  }
  return medians;
}

}  // namespace

double Now(bool wall) {
  timespec t;
  clock_gettime(wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

absl::StatusOr<Turns> RunInTurns(absl::Span<const Contender> contenders,
                                 const TurnsOptions& options) {
  std::vector<int64_t> calls;
  for (const Contender& contender : contenders) {
    RETURN_IF_ERROR(contender.run());  // Code is generated, memory is touched.
    ASSIGN_OR_RETURN(calls.emplace_back(), CallsPerStretch(contender, options.wall));
  }
  Turns turns;
  turns.seconds.resize(contenders.size());
  for (int turn = 0; turn < options.turns; ++turn) {
    ASSIGN_OR_RETURN(const std::vector<double> seconds, Turn(contenders, calls, options));
    for (size_t c = 0; c < seconds.size(); ++c) turns.seconds[c].push_back(seconds[c]);
    if (options.peak) turns.peak_gflops.push_back(engine::MeasureFmaPeakGflops());
  }
  return turns;
}

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, values.front(), values.back()};
}

std::vector<double> Ratios(absl::Span<const double> a, absl::Span<const double> b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return ratios;
}

double MeasureReadBandwidthGbs() {
  constexpr size_t kWords =
      size_t{256} << 17;  // 256 MiB: eight times the largest cache of the machines at hand.
  const std::vector<uint64_t> memory(kWords, 1);
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    const double begin = Now(/*wall=*/true);
    uint64_t sums[8] = {};
    for (size_t i = 0; i < kWords; i += 8) {
      for (size_t k = 0; k < 8; ++k) sums[k] += memory[i + k];
    }
    benchmark::DoNotOptimize(sums);
    best = std::min(best, Now(/*wall=*/true) - begin);
  }
  return static_cast<double>(kWords * sizeof(uint64_t)) / best / 1e9;
}

}  // namespace ulfd::bench
