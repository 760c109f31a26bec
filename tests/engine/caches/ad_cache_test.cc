// Models that keep what they computed of ads against the same models without.
// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/ad_cache.h"

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cached_models.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Kept;
using testing::OwnedRequest;
using testing::RunOnce;
using AdCachedModels = testing::CachedModels;

KeptKey KeyOf(const std::string& text) {
  KeptHasher hasher;
  hasher.AddCount(text.size());
  hasher.Add(text.data(), text.size());
  return hasher.key();
}

constexpr int64_t kRowBytes = 16;

// Finds or inserts numbered ads, each with a row of its number; returns how many were found.
size_t Ask(AdCache& cache, const std::vector<int64_t>& ads) {
  std::vector<KeptKey> keys, missing_keys;
  std::vector<int64_t> missing;
  for (const int64_t ad : ads) keys.push_back(KeyOf(std::to_string(ad)));
  std::vector<bool> found(ads.size(), false);
  AdCache::Work work;
  cache.Find(keys, work, [&](size_t i, const char* row) {
    int64_t numbers[2];
    std::memcpy(numbers, row, kRowBytes);
    EXPECT_EQ(numbers[0], ads[i]);
    EXPECT_EQ(numbers[1], ads[i]);
    found[i] = true;
  });
  for (size_t i = 0; i < ads.size(); ++i) {
    if (found[i]) continue;
    missing.push_back(ads[i]);
    missing_keys.push_back(keys[i]);
  }
  cache.Insert(missing_keys, work, [&](size_t i, char* row) {
    const int64_t numbers[2] = {missing[i], missing[i]};
    std::memcpy(row, numbers, kRowBytes);
  });
  return ads.size() - missing.size();
}

TEST(AdCacheTest, KeepsItsBoundWhateverComes) {
  constexpr int64_t kBytes = 1 << 20;
  AdCache cache(kBytes, kRowBytes, 0);
  for (int64_t ad = 0; ad < 100000; ad += 100) {
    std::vector<int64_t> ads;
    for (int64_t i = 0; i < 100; ++i) ads.push_back(ad + i);
    EXPECT_EQ(Ask(cache, ads), 0u);
    EXPECT_LE(cache.stats().bytes, kBytes);
  }
  EXPECT_GT(cache.stats().bytes, kBytes * 9 / 10);
  EXPECT_EQ(cache.stats().misses, 100000);
}

TEST(AdCacheTest, HoldsNothingWithoutRoom) {
  AdCache cache(100, kRowBytes, 0);
  EXPECT_EQ(Ask(cache, {1, 2}), 0u);
  EXPECT_EQ(Ask(cache, {1, 2}), 0u);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST(AdCacheTest, AnEmptyOneCountsOn) {
  AdCache cache(1 << 20, kRowBytes, 0);
  Ask(cache, {1, 2});
  const std::shared_ptr<AdCache> empty = cache.Empty();
  EXPECT_EQ(Ask(*empty, {1, 3}), 0u);
  EXPECT_EQ(Ask(*empty, {1}), 1u);
  EXPECT_EQ(empty->stats().misses, 4);
  EXPECT_EQ(empty->stats().hits, 1);
}

// Full and useless, it is asked seldom; once ads come again, always.
TEST(AdCacheTest, IsPassedWhileFewAreFound) {
  AdCache cache(1 << 20, kRowBytes, 0.5);
  int64_t next = 0;
  const auto ask_new = [&] {
    std::vector<int64_t> ads;
    for (int i = 0; i < 200; ++i) ads.push_back(++next);
    if (cache.Wants(200)) Ask(cache, ads);
  };
  for (int i = 0; i < 2000; ++i) ask_new();
  const AdCacheStats before = cache.stats();
  for (int i = 0; i < 2560; ++i) ask_new();
  EXPECT_EQ(cache.stats().misses - before.misses, 10 * 200);
  EXPECT_EQ(cache.stats().passed - before.passed, 2550 * 200);
  for (int i = 0; i < 20000; ++i) {
    if (cache.Wants(2)) Ask(cache, {1, 2});
  }
  const AdCacheStats asked = cache.stats();
  for (int i = 0; i < 20000; ++i) {
    if (cache.Wants(200)) Ask(cache, std::vector<int64_t>(200, 1));
  }
  EXPECT_GT(cache.stats().hits - asked.hits, 200 * 1000);
}

TEST(AdCacheTest, GivesEveryThreadWholeRows) {
  AdCache cache(100000, kRowBytes, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 500; ++i) {
        std::vector<int64_t> ads;
        for (int a = 0; a < 50; ++a) ads.push_back(random() % 1000);
        std::sort(ads.begin(), ads.end());
        ads.erase(std::unique(ads.begin(), ads.end()), ads.end());
        Ask(cache, ads);
        EXPECT_LE(cache.stats().bytes, 100000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cache.stats().hits, 0);
}

constexpr char kManyBytes[] = "ad_cache_bytes: 10000000\n";

using Outputs = std::vector<testing::OwnedOutput>;

// The same bits, NaNs too.
void ExpectSame(const Outputs& a, const Outputs& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t o = 0; o < a.size(); ++o) {
    ASSERT_EQ(a[o].dims, b[o].dims);
    ASSERT_EQ(a[o].values.size(), b[o].values.size());
    if (a[o].values.empty()) continue;
    EXPECT_EQ(
        std::memcmp(a[o].values.data(), b[o].values.data(), a[o].values.size() * sizeof(float)), 0);
  }
}

// Computed, found, in part found, and in a batch of users: as without a cache.
void CheckModel(const Model& plain, const Model& cached, absl::Span<const NamedTensor> sample,
                double tolerance) {
  std::mt19937 random(7);
  std::vector<OwnedRequest> users;
  for (int u = 0; u < 4; ++u) {
    users.push_back(OwnedRequest::Make(plain.info(), sample, 5, 3, random));
  }
  for (const OwnedRequest& user : users) {
    const Kept wanted = RunOnce(plain, user.tensors());
    const Kept computed = RunOnce(cached, user.tensors());
    EXPECT_LE(testing::Difference(computed.outputs, wanted.outputs), tolerance);
    EXPECT_EQ(computed.missing_ids, wanted.missing_ids);
    const Kept found = RunOnce(cached, user.tensors());
    ExpectSame(found.outputs, computed.outputs);
    EXPECT_EQ(found.missing_ids, wanted.missing_ids);
  }
  users.push_back(OwnedRequest::Make(plain.info(), sample, 5, 3, random));
  users.push_back(users[0]);
  const OwnedRequest batch = OwnedRequest::Join(users);
  const std::vector<int64_t> ads(users.size(), 5);
  const Kept wanted = RunOnce(plain, batch.tensors(), {.ads_per_user = ads});
  for (int i = 0; i < 2; ++i) {
    const Kept got = RunOnce(cached, batch.tensors(), {.ads_per_user = ads});
    EXPECT_LE(testing::Difference(got.outputs, wanted.outputs), tolerance);
    EXPECT_EQ(got.missing_ids, wanted.missing_ids);
  }
}

TEST_F(AdCachedModels, CommittedRandomGraphs) {
  int with_cache = 0;
  for (const testing::GraphCase& graph_case :
       testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/random.json")) {
    SCOPED_TRACE(graph_case.name);
    const std::string directory = testing::WriteModelDirectory(graph_case, base_);
    for (const bool exact : {false, true}) {
      const std::string manifest =
          absl::StrCat(testing::InputManifest(graph_case), exact ? "exact: true\n" : "");
      std::ofstream(directory + "/model.textproto") << manifest;
      const auto plain = Model::Load({.directory = directory});
      if (!plain.ok() || !(*plain)->info().proof_failure.empty()) continue;
      std::ofstream(directory + "/model.textproto") << manifest << kManyBytes;
      const auto cached = Model::Load(
          {.directory = directory, .passes = {.item_columns = 1}, .always_keep_ads = true});
      ASSERT_TRUE(cached.ok()) << cached.status();
      const testing::CaseInputs inputs(graph_case.inputs);
      CheckModel(**plain, **cached, inputs.tensors(), exact ? 0 : 1e-6);
      if ((*cached)->info().ad_cache_bytes == 0) continue;
      with_cache += (*cached)->ad_cache().hits > 0;
    }
  }
  EXPECT_GT(with_cache, 50);
}

constexpr char kTower[] = R"(
  layer_params { name: "s" type: "softmax_layer" bottom: "a" top: "s" }
  layer_params { name: "m" type: "multiply_layer" bottom: "u" bottom: "s" top: "y" }
)";

// Of ads of two columns.
Outputs Score(const Model& model, std::vector<float> ads, float user = 1,
              const RunOptions& options = {}) {
  float u[] = {user, 2};
  const auto rows = static_cast<int64_t>(ads.size() / 2);
  const std::vector<NamedTensor> inputs = {{"u", {DType::kFloat32, {1, 2}, u}},
                                           {"a", {DType::kFloat32, {rows, 2}, ads.data()}}};
  return RunOnce(model, inputs, options).outputs;
}

TEST_F(AdCachedModels, HitsMissesAndTheSameAdTwiceInOneRequest) {
  const auto plain = Load(kTower, "");
  const auto cached = Load(kTower, kManyBytes);
  ASSERT_TRUE(plain.ok() && cached.ok()) << plain.status() << cached.status();
  const std::vector<float> first = {1, 2, 3, 4, 1, 2}, second = {5, 6, 3, 4, 5, 6, -0.0f, 0, 0, 0};
  ExpectSame(Score(**cached, first), Score(**plain, first));
  EXPECT_EQ((*cached)->ad_cache().misses, 3);
  EXPECT_EQ((*cached)->ad_cache().bytes, 2 * (8 + AdCache::kEntryBytes));
  ExpectSame(Score(**cached, second, 3), Score(**plain, second, 3));
  EXPECT_EQ((*cached)->ad_cache().hits, 1);
  EXPECT_EQ((*cached)->ad_cache().misses, 3 + 4);
  ExpectSame(Score(**cached, first, 3), Score(**plain, first, 3));
  EXPECT_EQ((*cached)->ad_cache().hits, 1 + 3);
  EXPECT_EQ((*cached)->info().ad_hit_flops,
            (*cached)->OptimisedPlan()->CostOf(PlanPart::kAd).flops.per_ad);
  EXPECT_GT((*cached)->info().ad_hit_flops, 0);
  EXPECT_EQ((*cached)->info().memory_bytes, (*plain)->info().memory_bytes + 10000000);
}

TEST_F(AdCachedModels, TimedRequestsUseItAndMadeUpOnesDoNot) {
  const auto cached = Load(kTower, kManyBytes);
  ASSERT_TRUE(cached.ok()) << cached.status();
  const std::vector<float> ads = {1, 2, 3, 4};
  const Outputs made_up = Score(**cached, ads, 1, {.made_up = true});
  EXPECT_EQ((*cached)->ad_cache().misses, 0);
  StepTimes steps;
  ExpectSame(Score(**cached, ads, 1, {.steps = &steps}), made_up);
  EXPECT_EQ((*cached)->ad_cache().misses, 2);
  ExpectSame(Score(**cached, ads, 1, {.steps = &steps}), made_up);
  EXPECT_EQ((*cached)->ad_cache().hits, 2);
}

TEST_F(AdCachedModels, ThreadsShareOneModel) {
  const auto plain = Load(kTower, "");
  const auto cached = Load(kTower, "ad_cache_bytes: 50000\n");
  ASSERT_TRUE(plain.ok() && cached.ok()) << plain.status() << cached.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 200; ++i) {
        std::vector<float> ads(60);
        for (float& value : ads) value = static_cast<float>(random() % 30);
        ExpectSame(Score(**cached, ads), Score(**plain, ads));
        EXPECT_LE((*cached)->ad_cache().bytes, 50000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT((*cached)->ad_cache().hits, 0);
}

TEST_F(AdCachedModels, SaysWhereThereIsNothingToKeep) {
  const auto model = Load(testing::kTogether, kManyBytes);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().notices,
              ElementsAre(HasSubstr("ad_cache_bytes has no effect: nothing is computed from")));
  EXPECT_EQ((*model)->info().ad_cache_bytes, 0);
}

TEST_F(AdCachedModels, KeepsNothingWhereComputingIsFaster) {
  const auto model = Load(kTower, kManyBytes, false);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().notices,
              ElementsAre(HasSubstr("ad_cache_bytes has no effect: an ad's part takes")));
}

TEST_F(AdCachedModels, RefusesNegativeSizes) {
  const auto model = Load(kTower, "ad_cache_bytes: -1");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("ad_cache_bytes is -1, want 0 to 1099511627776"));
}

}  // namespace
}  // namespace ulfd::engine
