// Arrival processes and distributions have the properties that their names promise.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "tools/load/ad_counts.h"
#include "tools/load/arrivals.h"
#include "tools/load/zipf.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNs = 1e9;

std::vector<int64_t> Take(const Arrivals& arrivals, int count) {
  std::vector<int64_t> times;
  for (int i = 0; i < count; ++i) {
    const std::optional<int64_t> next = arrivals();
    if (!next) break;
    times.push_back(*next);
  }
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  return times;
}

TEST(Random, streams_of_a_seed_differ_and_repeat) {
  Random a(7, 1), again(7, 1), b(7, 2), other(8, 1);
  const uint64_t first = a.Next();
  EXPECT_EQ(first, again.Next());
  EXPECT_NE(first, b.Next());
  EXPECT_NE(first, other.Next());
}

TEST(Random, normal_has_mean_0_and_variance_1) {
  Random random(5);
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(ConstantArrivals, are_equidistant_without_drift) {
  const auto arrivals = ConstantArrivals(3);
  const std::vector<int64_t> times = Take(arrivals, 3001);
  EXPECT_THAT(std::vector<int64_t>(times.begin(), times.begin() + 4),
              ElementsAre(0, 333333333, 666666667, 1000000000));
  EXPECT_EQ(times[3000], int64_t{1000} * 1000000000);
}

TEST(PoissonArrivals, have_exponential_gaps_and_independent_counts) {
  constexpr double kRate = 1000;
  constexpr int kCount = 100000;
  const auto arrivals = PoissonArrivals(kRate, 1);
  const std::vector<int64_t> times = Take(arrivals, kCount);
  EXPECT_NEAR(static_cast<double>(times.back()) / kNs, kCount / kRate, 0.02 * kCount / kRate);
  // The distribution of the gaps, by the largest distance from 1 - exp(-t).
  std::vector<double> gaps;
  for (int i = 1; i < kCount; ++i) {
    gaps.push_back(static_cast<double>(times[i] - times[i - 1]) / kNs * kRate);
  }
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;
  for (size_t i = 0; i < gaps.size(); ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(gaps.size());
    distance = std::max(distance, std::abs(share - (1 - std::exp(-gaps[i]))));
  }
  EXPECT_LT(distance, 0.01);
  // Counts per 10 ms: the variance is the mean.
  std::vector<int> counts(static_cast<size_t>(times.back() / 10000000));
  for (const int64_t t : times) {
    if (t / 10000000 < static_cast<int64_t>(counts.size())) ++counts[t / 10000000];
  }
  double mean = 0, variance = 0;
  for (const int c : counts) mean += c;
  mean /= static_cast<double>(counts.size());
  for (const int c : counts) variance += (c - mean) * (c - mean);
  variance /= static_cast<double>(counts.size());
  EXPECT_NEAR(variance / mean, 1, 0.05);
}

TEST(PoissonArrivals, are_those_of_their_seed) {
  EXPECT_EQ(Take(PoissonArrivals(10, 3), 100), Take(PoissonArrivals(10, 3), 100));
  EXPECT_NE(Take(PoissonArrivals(10, 3), 100), Take(PoissonArrivals(10, 4), 100));
}

TEST(BurstArrivals, keep_the_mean_and_crowd_within_the_burst) {
  const Bursts bursts{.factor = 5, .period_s = 1, .length_s = 0.1};
  constexpr double kRate = 1000;
  const auto arrivals = BurstArrivals(kRate, bursts, 1);
  const std::vector<int64_t> times = Take(arrivals, 200000);
  EXPECT_NEAR(static_cast<double>(times.back()) / kNs, 200, 2);
  double burst = 0, pause = 0;
  for (const int64_t t : times) ++(t % 1000000000 >= 900000000 ? burst : pause);
  // Per second of burst and of pause.
  EXPECT_NEAR((burst / 0.1) / (pause / 0.9), 5, 0.15);
}

TEST(RecordedArrivals, keep_the_gaps) {
  const std::vector<int64_t> times = {1000, 1200, 2000};
  EXPECT_THAT(Take(RecordedArrivals(times, 1, false), 9), ElementsAre(0, 200, 1000));
  EXPECT_THAT(Take(RecordedArrivals(times, 2, false), 9), ElementsAre(0, 100, 500));
  // Repeated after the mean gap, 500.
  EXPECT_THAT(Take(RecordedArrivals(times, 1, true), 7),
              ElementsAre(0, 200, 1000, 1500, 1700, 2500, 3000));
  EXPECT_THAT(Take(RecordedArrivals({5}, 1, true), 3), ElementsAre(0, 1000000000, 2000000000));
  EXPECT_THAT(Take(RecordedArrivals({}, 1, true), 3), ElementsAre());
}

// Frequencies against the definition, for exponents below, at and above 1.
TEST(Zipf, frequencies_are_those_of_the_definition) {
  constexpr int kRanks = 10, kDraws = 200000;
  for (const double exponent : {0.0, 0.5, 1.0, 1.0000001, 1.3, 2.5}) {
    const Zipf zipf(kRanks, exponent);
    Random random(11);
    std::vector<double> seen(kRanks);
    for (int i = 0; i < kDraws; ++i) {
      const int64_t rank = zipf.Draw(random);
      ASSERT_GE(rank, 0);
      ASSERT_LT(rank, kRanks);
      ++seen[static_cast<size_t>(rank)];
    }
    double norm = 0;
    for (int r = 1; r <= kRanks; ++r) norm += std::pow(r, -exponent);
    for (int r = 1; r <= kRanks; ++r) {
      const double expected = std::pow(r, -exponent) / norm;
      EXPECT_NEAR(seen[r - 1] / kDraws, expected, 4 * std::sqrt(expected / kDraws) + 1e-4)
          << "exponent " << exponent << ", rank " << r;
    }
  }
}

TEST(Zipf, reaches_the_end_of_a_large_range) {
  const Zipf zipf(int64_t{1} << 40, 0.5);
  Random random(2);
  int64_t highest = 0;
  for (int i = 0; i < 10000; ++i) highest = std::max(highest, zipf.Draw(random));
  EXPECT_GT(highest, int64_t{1} << 39);
  EXPECT_LT(highest, int64_t{1} << 40);
  EXPECT_EQ(Zipf(1, 1).Draw(random), 0);
}

TEST(AdCounts, constant_and_uniform) {
  Random random(1);
  EXPECT_EQ(AdCounts::Parse("200")->Draw(random), 200);
  const auto uniform = AdCounts::Parse("uniform:3..5");
  ASSERT_TRUE(uniform.ok()) << uniform.status();
  std::map<int64_t, int> seen;
  for (int i = 0; i < 3000; ++i) ++seen[uniform->Draw(random)];
  ASSERT_EQ(seen.size(), 3u);
  for (const auto& [ads, count] : seen) EXPECT_NEAR(count, 1000, 120) << ads;
}

TEST(AdCounts, lognormal_has_its_median_and_spread_and_limits) {
  const auto counts = AdCounts::Parse("lognormal:median=100,sigma=0.5,max=300");
  ASSERT_TRUE(counts.ok()) << counts.status();
  Random random(1);
  std::vector<int64_t> drawn;
  for (int i = 0; i < 20001; ++i) drawn.push_back(counts->Draw(random));
  std::sort(drawn.begin(), drawn.end());
  EXPECT_NEAR(static_cast<double>(drawn[10000]), 100, 2);
  EXPECT_NEAR(static_cast<double>(drawn[16827]), 100 * std::exp(0.5), 4);  // One sigma.
  EXPECT_EQ(drawn.back(), 300);
  EXPECT_GE(drawn.front(), 1);
}

TEST(AdCounts, mix_and_empirical) {
  const auto mix = AdCounts::Parse("mix:10@95,2000@5");
  ASSERT_TRUE(mix.ok()) << mix.status();
  Random random(1);
  int large = 0;
  for (int i = 0; i < 20000; ++i) {
    const int64_t ads = mix->Draw(random);
    ASSERT_TRUE(ads == 10 || ads == 2000) << ads;
    large += ads == 2000;
  }
  EXPECT_NEAR(large, 1000, 120);
  const AdCounts empirical = AdCounts::Empirical({7, 7, 9});
  int nines = 0;
  for (int i = 0; i < 3000; ++i) nines += empirical.Draw(random) == 9;
  EXPECT_NEAR(nines, 1000, 120);
}

TEST(AdCounts, errors_name_the_part) {
  const auto error = [](const char* text) {
    return std::string(AdCounts::Parse(text).status().message());
  };
  EXPECT_EQ(error("0"), "\"0\", want a number in 1..1000000");
  EXPECT_EQ(error("many"), "\"many\", want a number in 1..1000000");
  EXPECT_EQ(error("uniform:5"), "uniform: \"5\", want LOW..HIGH");
  EXPECT_EQ(error("uniform:9..5"), "uniform: 9 is above 5");
  EXPECT_THAT(error("lognormal:mu=3"), HasSubstr("\"mu=3\", want median="));
  EXPECT_THAT(error("lognormal:sigma=nan"), HasSubstr("\"sigma=nan\", want 0..10"));
  EXPECT_EQ(error("lognormal:min=5,max=4"), "lognormal: min=5 is above max=4");
  EXPECT_THAT(error("mix:10"), HasSubstr("\"10\", want ADS@SHARE"));
}

}  // namespace
}  // namespace ulfd::tools
