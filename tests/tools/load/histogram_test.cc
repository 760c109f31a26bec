// Quantiles within the promised error, and what a closed loop leaves out put back.
// SPDX-License-Identifier: Apache-2.0
#include "tools/load/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/load/random.h"

namespace ulfd::tools {
namespace {

TEST(LatencyHistogram, quantiles_are_never_too_low_and_at_most_a_thousandth_too_high) {
  Random random(1);
  LatencyHistogram histogram;
  std::vector<int64_t> values;
  for (int i = 0; i < 20000; ++i) {
    // 1 ns .. about 20 s, every magnitude alike.
    values.push_back(static_cast<int64_t>(std::exp(random.Uniform() * 23.7)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double q : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const auto rank = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(q * 20000 - 1e-6)));
    const int64_t exact = values[static_cast<size_t>(rank - 1)];
    EXPECT_GE(histogram.Quantile(q), exact) << q;
    EXPECT_LE(histogram.Quantile(q), exact + exact / 1000 + 1) << q;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
  double sum = 0;
  for (const int64_t v : values) sum += static_cast<double>(v);
  EXPECT_NEAR(histogram.mean(), sum / 20000, 1e-6 * sum / 20000);
}

TEST(LatencyHistogram, ranks_are_exact) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.Record(i);
  EXPECT_EQ(histogram.Quantile(0.99), 99);
  EXPECT_EQ(histogram.Quantile(0.991), 100);
  EXPECT_EQ(histogram.Quantile(0.5), 50);
  EXPECT_EQ(histogram.Quantile(0.29), 29);  // 0.29 * 100 is a little more than 29.
  EXPECT_EQ(histogram.Quantile(0), 1);
}

TEST(LatencyHistogram, empty_and_out_of_range) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.Record(-5);
  histogram.Record(int64_t{1} << 60);
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), LatencyHistogram::kMaxNs);
}

TEST(LatencyHistogram, buckets_tile_the_range) {
  LatencyHistogram histogram(3);
  for (int64_t v = 0; v < 1000; ++v) histogram.Record(v);
  int64_t next = 0, total = 0;
  histogram.ForEach([&](int64_t low, int64_t high, int64_t count) {
    EXPECT_EQ(low, next);
    EXPECT_LE(count, high - low + 1);
    next = high + 1;
    total += count;
  });
  EXPECT_EQ(total, 1000);
}

// The textbook case: a server answers in 1 ms, except that it once hangs for 100 s.  A client that
// waits for replies sends 100,000 calls in the good 100 s and a single one in the bad 100 s.
TEST(LatencyHistogram, correction_gives_the_hang_its_weight) {
  constexpr int64_t kMs = 1000000, kHang = 100000 * kMs;
  LatencyHistogram seen;
  seen.Record(kMs, 100000);
  seen.Record(kHang);
  EXPECT_LE(seen.Quantile(0.9999), kMs + kMs / 500);  // The hang is not to be seen.
  const LatencyHistogram corrected = seen.CorrectedFor(kMs);
  EXPECT_NEAR(static_cast<double>(corrected.count()), 200000, 5);
  // Half of the time was good; waits in the bad half are spread evenly over 0..100 s.
  EXPECT_NEAR(static_cast<double>(corrected.Quantile(0.75)), 0.5 * kHang, 0.005 * kHang);
  EXPECT_NEAR(static_cast<double>(corrected.Quantile(0.99)), 0.98 * kHang, 0.005 * kHang);
  EXPECT_EQ(corrected.max(), kHang);
}

TEST(LatencyHistogram, correction_leaves_quick_calls_alone) {
  LatencyHistogram seen;
  for (int i = 0; i < 100; ++i) seen.Record(1000 + i);
  const LatencyHistogram corrected = seen.CorrectedFor(2000);
  EXPECT_EQ(corrected.count(), 100);
  EXPECT_EQ(corrected.Quantile(0.5), seen.Quantile(0.5));
  EXPECT_EQ(seen.CorrectedFor(0).count(), 100);
}

}  // namespace
}  // namespace ulfd::tools
