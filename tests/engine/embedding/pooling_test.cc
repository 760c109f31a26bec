// Pooling of one feature: hand-computed cases, and random ones against a plain loop in double.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<const EmbeddingTable> MakeTable(absl::string_view content,
                                                const TableOptions& options = {}) {
  const TempDir dir;
  auto table = EmbeddingTable::LoadText("items", dir.Write("t", content), options);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

// PoolFeatures with scratch of exactly the size that it asks for.
absl::Status RunJobs(const std::vector<FeatureJob>& jobs, size_t* failed = nullptr) {
  size_t ids = 0, job = 0;
  for (const FeatureJob& j : jobs) ids += j.input.ids.size();
  const std::unique_ptr<char[]> scratch(new char[ids * kPoolingScratchBytes]);
  Pace pace;
  const absl::Status status = PoolFeatures(jobs, scratch.get(), pace, &job);
  if (failed != nullptr) *failed = job;
  return status;
}

// Looks up and pools into a block of its own; every value of the block is written or the test sees
// -99.
std::vector<float> PoolAlone(const PoolingSpec& spec, const EmbeddingTable& table,
                             const std::vector<int64_t>& ids, const std::vector<float>& values,
                             const std::vector<int32_t>& segments, int64_t* missing = nullptr) {
  const FeatureInput input{ids, values.empty() ? nullptr : values.data(), segments};
  EXPECT_TRUE(CheckSegments(input).ok());
  std::vector<float> out(segments.size() * static_cast<size_t>(spec.width()), -99);
  const PoolingOutput output{spec, out.data(), spec.width()};
  int64_t count = 0;
  const FeatureJob job{&table, input, {&output, 1}, &count};
  const absl::Status status = RunJobs({job});
  EXPECT_TRUE(status.ok()) << status;
  if (missing != nullptr) *missing = count;
  return out;
}

constexpr char kTable[] = "7,1,2\n8,10,20\n-3,100,200\n0,1000,2000\n";
const PoolingSpec kSum2{.pooling = Pooling::kSum, .dim = 2};
const PoolingSpec kAvg2{.pooling = Pooling::kAvg, .dim = 2};

PoolingSpec Assign(int64_t slots, bool keep_last) {
  return {.pooling = Pooling::kAssign, .dim = 2, .trunc_num = slots, .keep_last = keep_last};
}

TEST(Pool, SumAddsValueTimesRow) {
  const auto table = MakeTable(kTable);
  int64_t missing = 0;
  EXPECT_THAT(PoolAlone(kSum2, *table, {8, 7, 55, 0}, {0.5f, 2, 9, -1}, {3, 0, 1}, &missing),
              ElementsAre(7, 14, 0, 0, -1000, -2000));
  EXPECT_EQ(missing, 1);
  EXPECT_THAT(PoolAlone(kSum2, *table, {8, -3}, {}, {2}), ElementsAre(110, 220));
}

TEST(Pool, AvgCountsMissingIds) {
  const auto table = MakeTable(kTable);
  EXPECT_THAT(PoolAlone(kAvg2, *table, {8, 55, 7, -3, 55}, {}, {3, 1, 1, 0}),
              ElementsAre(11 / 3.0f, 22 / 3.0f, 100, 200, 0, 0, 0, 0));
}

TEST(Pool, AssignStandsLeftInOrderAndRightReversed) {
  const auto table = MakeTable(kTable);
  EXPECT_THAT(PoolAlone(Assign(3, false), *table, {7, 8}, {1, 0.5f}, {2}),
              ElementsAre(1, 2, 5, 10, 0, 0));
  EXPECT_THAT(PoolAlone(Assign(3, true), *table, {7, 8}, {1, 0.5f}, {2}),
              ElementsAre(0, 0, 1, 2, 5, 10));
  // Four ids in two slots: the first two or the last two; a missing id keeps its slot.
  EXPECT_THAT(PoolAlone(Assign(2, false), *table, {55, 8, 7, -3}, {}, {4}),
              ElementsAre(0, 0, 10, 20));
  EXPECT_THAT(PoolAlone(Assign(2, true), *table, {7, 8, 55, -3}, {}, {4}),
              ElementsAre(0, 0, 100, 200));
  EXPECT_THAT(PoolAlone(Assign(2, true), *table, {}, {}, {0, 0}),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(PoolAlone(Assign(0, true), *table, {7, 8}, {}, {2}), ElementsAre());
}

TEST(Pool, TruncatesSumAndAvgOnlyWhenTold) {
  const auto table = MakeTable(kTable);
  PoolingSpec spec = kAvg2;
  spec.trunc_num = 2;
  EXPECT_THAT(PoolAlone(spec, *table, {7, 8, 55, -3}, {}, {3, 1}), ElementsAre(5, 10, 100, 200));
  spec.keep_last = false;
  EXPECT_THAT(PoolAlone(spec, *table, {7, 8, 55, -3}, {}, {3, 1}), ElementsAre(5.5f, 11, 100, 200));
  spec.pooling = Pooling::kSum;
  spec.trunc_num = 1;
  EXPECT_THAT(PoolAlone(spec, *table, {7, 8, 55, -3}, {}, {3, 1}), ElementsAre(1, 2, 100, 200));
}

TEST(Pool, LooksWhetherSomebodyWaits) {
  constexpr int64_t kIds = 300000, kDim = 1000;
  std::string row = "7";
  for (int64_t i = 0; i < kDim; ++i) row += i % 2 == 0 ? ",1" : ",2";
  const auto table = MakeTable(row + "\n");
  const std::vector<int64_t> ids(kIds, 7);
  const std::vector<int32_t> segments = {kIds};
  int64_t missing = 0;
  std::vector<float> out(kDim);
  const PoolingOutput output{{.pooling = Pooling::kSum, .dim = kDim}, out.data(), kDim};
  const FeatureJob job{table.get(), {ids, nullptr, segments}, {&output, 1}, &missing};
  std::vector<char> scratch(kIds * kPoolingScratchBytes);
  size_t failed = 0;
  int looks = 0;
  std::function<bool()> stop = [&looks] { return ++looks < 0; };
  Pace pace(&stop);
  ASSERT_TRUE(PoolFeatures({&job, 1}, scratch.data(), pace, &failed).ok());
  EXPECT_GT(looks, 8 + 4);  // Of the sums and of the look-ups.
  for (int64_t i = 0; i < kDim; ++i) ASSERT_EQ(out[i], i % 2 == 0 ? kIds : 2 * kIds) << i;
  looks = 0;
  stop = [&looks] { return ++looks > 10; };
  pace = Pace(&stop);
  EXPECT_TRUE(absl::IsCancelled(PoolFeatures({&job, 1}, scratch.data(), pace, &failed)));
  EXPECT_EQ(looks, 11);
}

TEST(Pool, LeavesTheOtherColumnsOfTheBlockAlone) {
  const auto table = MakeTable(kTable);
  const std::vector<int64_t> ids = {7, 8};
  const std::vector<int32_t> segments = {1, 1};
  int64_t missing = 0;
  std::vector<float> out(10, -1);
  const PoolingOutput output{kSum2, out.data() + 2, 5};
  ASSERT_TRUE(RunJobs({{table.get(), {ids, nullptr, segments}, {&output, 1}, &missing}}).ok());
  EXPECT_THAT(out, ElementsAre(-1, -1, 1, 2, -1, -1, -1, 10, 20, -1));
}

TEST(Pool, FollowsThePolicyForMissingIds) {
  const auto fallback =
      MakeTable(kTable, {.missing_keys = MissingKeys::kDefaultRow, .default_id = 8});
  int64_t missing = 0;
  EXPECT_THAT(PoolAlone(kSum2, *fallback, {5, 7}, {2, 1}, {2}, &missing), ElementsAre(21, 42));
  EXPECT_EQ(missing, 1);
  const auto strict = MakeTable(kTable, {.missing_keys = MissingKeys::kError});
  const std::vector<int64_t> good = {7}, bad = {7, -5, 6};
  const std::vector<int32_t> one = {1}, three = {3};
  size_t failed = 0;
  EXPECT_EQ(RunJobs({{strict.get(), {good, nullptr, one}, {}, &missing},
                     {fallback.get(), {bad, nullptr, three}, {}, &missing},
                     {strict.get(), {bad, nullptr, three}, {}, &missing},
                     {strict.get(), {bad, nullptr, three}, {}, &missing}},
                    &failed)
                .message(),
            "id -5 is not in table \"items\"");
  EXPECT_EQ(failed, 2u);
  EXPECT_TRUE(RunJobs({{strict.get(), {}, {}, &missing}}).ok());
}

TEST(CheckSegments, WantsCountsThatSumToTheIds) {
  const auto error = [](size_t ids, const std::vector<int32_t>& segments) {
    const std::vector<int64_t> some(ids);
    return std::string(CheckSegments({some, nullptr, segments}).message());
  };
  EXPECT_EQ(error(0, {}), "");
  EXPECT_EQ(error(3, {1, 0, 2}), "");
  EXPECT_EQ(error(3, {1, 1}), "segments sum to 2, want 3, the number of ids");
  EXPECT_EQ(error(3, {}), "segments sum to 0, want 3, the number of ids");
  EXPECT_EQ(error(1, {2, -1}), "segments[1] is -1, want at least 0");
  EXPECT_EQ(error(1, {INT32_MAX, INT32_MAX, 3}),  // Wraps to 1 in 32 bits.
            "segments sum to 4294967297, want 1, the number of ids");
}

class PoolTest : public ::testing::TestWithParam<int64_t> {};

// From one id of the table to the next.
INSTANTIATE_TEST_SUITE_P(Steps, PoolTest, ::testing::Values(3, 1));

TEST_P(PoolTest, AgreesWithAPlainLoop) {
  std::mt19937 random(11);
  constexpr int kDim = 19;  // No multiple of a vector.
  std::string content;
  std::map<int64_t, std::vector<double>> plain;
  for (int64_t id = -20; id < 20; ++id) {
    absl::StrAppend(&content, id * GetParam());
    for (int c = 0; c < kDim; ++c) {
      const int value = static_cast<int>(random() % 2001) - 1000;
      absl::StrAppend(&content, ",", value);
      plain[id * GetParam()].push_back(value);
    }
    content += "\n";
  }
  const auto table = MakeTable(content);
  ASSERT_EQ(table->base()->first_id.has_value(), GetParam() == 1);
  for (int round = 0; round < 300; ++round) {
    PoolingSpec spec{.pooling = static_cast<Pooling>(random() % 3),
                     .dim = kDim,
                     .trunc_num = static_cast<int64_t>(random() % 6),
                     .keep_last = random() % 2 == 0};
    std::vector<int64_t> ids;
    std::vector<float> values;
    std::vector<int32_t> segments(random() % 9);
    for (int32_t& n : segments) {
      n = static_cast<int32_t>(random() % 40 % (1 + random() % 40));
      for (int32_t i = 0; i < n; ++i) ids.push_back(static_cast<int64_t>(random() % 140) - 70);
    }
    if (random() % 2 == 0) {
      for (size_t i = 0; i < ids.size(); ++i)
        values.push_back((static_cast<int>(random() % 9) - 4) / 2.0f);
    }
    const std::vector<float> got = PoolAlone(spec, *table, ids, values, segments);
    const auto width = static_cast<size_t>(spec.width());
    size_t at = 0;
    for (size_t r = 0; r < segments.size(); ++r) {
      const int64_t n = segments[r];
      const bool all = spec.pooling != Pooling::kAssign && spec.trunc_num == 0;
      const int64_t kept = all ? n : std::min(n, spec.trunc_num);
      std::vector<double> want(width, 0.0);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t first = spec.keep_last ? n - kept : 0;
        const auto row = plain.find(ids[at + static_cast<size_t>(j)]);
        if (j < first || j >= first + kept || row == plain.end()) continue;
        const double value = values.empty() ? 1 : values[at + static_cast<size_t>(j)];
        int64_t slot = 0;
        if (spec.pooling == Pooling::kAssign) slot = spec.keep_last ? spec.trunc_num - (n - j) : j;
        for (size_t c = 0; c < kDim; ++c) {
          want[static_cast<size_t>(slot) * kDim + c] += value * row->second[c];
        }
      }
      for (size_t c = 0; c < width; ++c) {
        const double divisor = spec.pooling == Pooling::kAvg && kept > 0 ? kept : 1;
        ASSERT_NEAR(got[r * width + c], want[c] / divisor, 1e-3) << round << " row " << r;
      }
      at += static_cast<size_t>(n);
    }
  }
}

}  // namespace
}  // namespace ulfd::engine
