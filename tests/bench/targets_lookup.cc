// The target of embedding lookups: one pass over a request's ids against a bare gather of the same
// rows.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/bench/lookups.h"
#include "tests/bench/targets.h"

namespace ulfd::bench {
namespace {

constexpr int64_t kKeys = 40000000, kDim = 18;
constexpr int64_t kRequests = 500;  // Together far more rows than any cache holds.
constexpr int64_t kBag = 10;
constexpr double kTarget = 1.3;
constexpr int64_t kNeededBytes = int64_t{7}
                                 << 30;  // Table, index while it is made, and room to spare.

int64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %ld kB", &kib) == 1) return int64_t{kib} * 1024;
  }
  return 0;
}

// INTERNAL unless the sums of the request are right.
absl::Status Check(const LookupPass& pass, const LookupRequest& request) {
  for (int64_t bag = 0; bag < kIdsPerRequest / kBag; ++bag) {
    float sum = 0;  // Whole numbers: exact in any order.
    for (int64_t i = 0; i < kBag; ++i) sum += request.rows[bag * kBag + i][0];
    for (int64_t c = 0; c < kDim; ++c) {
      const float found = pass.out()[bag * kDim + c];
      if (found == sum) continue;
      return absl::InternalError(
          absl::StrFormat("bag %d column %d: %g, want %g", bag, c, found, sum));
    }
  }
  return pass.missing() == 0 ? absl::OkStatus() : absl::InternalError("ids are missing");
}

}  // namespace

absl::Status MeasureLookups(TargetContext& context, const std::string& row) {
  TargetLine line{.row = row,
                  .work = "one pass of lookups, 40 M keys of 18 floats: over a bare gather",
                  .target = absl::StrFormat("at most %.3g x", kTarget)};
  if (AvailableBytes() < kNeededBytes) {
    Skip(context, row, line.work, line.target, "less than 7 GiB of memory available");
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto table, MakeTable(kKeys, kDim));
  std::mt19937_64 random(3);
  std::vector<LookupRequest> requests;
  for (int64_t r = 0; r < kRequests; ++r) requests.push_back(MakeLookups(*table, 100, random));
  LookupPass pass(*table, kBag);
  std::vector<float> sum(kDim);
  RETURN_IF_ERROR(pass.Run(requests[0]));
  RETURN_IF_ERROR(Check(pass, requests[0]));
  // The gather is half of the requests ahead, so that neither finds what the other one brought into
  // the cache.
  int64_t passed = 0, gathered = kRequests / 2;
  ASSIGN_OR_RETURN(const Turns turns,
                   RunInTurns({{"pass", [&] { return pass.Run(requests[passed++ % kRequests]); }},
                               {"gather",
                                [&] {
                                  GatherDim<kDim>(requests[gathered++ % kRequests].rows,
                                                  sum.data());
                                  return absl::OkStatus();
                                }}},
                              context.turns));
  const Spread ratio = SpreadOf(Ratios(turns.seconds[0], turns.seconds[1]));
  line.reached = Format(ratio, " x");
  line.verdict = ratio.median <= kTarget ? Verdict::kReached : Verdict::kMissed;
  line.numbers = {{"ratio", ratio.median}, {"ratio_low", ratio.low}, {"ratio_high", ratio.high}};
  line.detail = absl::StrFormat("%.1f and %.1f ns per id; table %.2f GB",
                                SpreadOf(turns.seconds[0]).median / kIdsPerRequest * 1e9,
                                SpreadOf(turns.seconds[1]).median / kIdsPerRequest * 1e9,
                                static_cast<double>(table->bytes()) * 1e-9);
  context.lines.push_back(std::move(line));
  return absl::OkStatus();
}

}  // namespace ulfd::bench
