// Timing programs in turns (A B A B ...): a shared machine drifts by a third within minutes, so
// only what ran side by side can be compared.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_BENCH_TURNS_H_
#define ULFD_TESTS_BENCH_TURNS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace ulfd::bench {

struct TurnsOptions {
  int turns = 7;
  double seconds =
      0.1;  // Of each contender in each turn, in stretches of at least 1 ms and one call.
  // CPU time of the calling thread (what other processes take does not count), or time on the wall,
  // for work that is spread over threads.
  bool wall = false;
  // Whether the FMA peak is measured between the turns, which takes 10 ms each.
  bool peak = true;
};

struct Contender {
  std::string name;
  std::function<absl::Status()> run;  // One unit of work.
};

struct Turns {
  // Per contender and turn: seconds per call, the median of its stretches.
  std::vector<std::vector<double>> seconds;
  // Per turn: GFLOP/s of one thread, measured after the contenders; empty without
  // TurnsOptions::peak.
  std::vector<double> peak_gflops;
};

// Runs every contender once unmeasured, then all of them in turns, a stretch each, so that what
// disturbs the machine for some milliseconds disturbs all of them.  The first error ends it.
absl::StatusOr<Turns> RunInTurns(absl::Span<const Contender> contenders,
                                 const TurnsOptions& options);

// Seconds of a clock: on the wall, or the CPU time of the calling thread.
double Now(bool wall);

struct Spread {
  double median = 0, low = 0, high = 0;  // Low and high: the extremes.
};
// REQUIRES: not empty.
Spread SpreadOf(std::vector<double> values);
// a[i] / b[i].
std::vector<double> Ratios(absl::Span<const double> a, absl::Span<const double> b);

// GB/s at which one thread reads memory that is in no cache.  Takes about 0.2 s.
double MeasureReadBandwidthGbs();

}  // namespace ulfd::bench

#endif  // ULFD_TESTS_BENCH_TURNS_H_
