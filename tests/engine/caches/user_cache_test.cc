// Models that keep what they computed of users against the same models without.
// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/user_cache.h"

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cached_models.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

using testing::CachedModels;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Kept;
using testing::OwnedRequest;
using testing::RunOnce;

constexpr char kManyBytes[] = "user_cache_bytes: 100000000\n";

using CachedOr = absl::StatusOr<std::shared_ptr<const CachedUser>>;

CachedOr Made(const std::string& values) {
  auto user = std::make_shared<CachedUser>();
  user->values = values;
  return user;
}

// `others` threads ask for the user while it is computed; nobody but the first computes it unless
// that fails.
std::vector<CachedOr> AskAtOnce(UserCache& cache, int others, const CachedOr& first) {
  std::vector<CachedOr> found(others + 1, absl::UnknownError("not asked"));
  std::vector<std::thread> threads;
  found[0] = cache.FindOrCompute({}, [&] {
    for (int i = 1; i <= others; ++i) {
      threads.emplace_back(
          [&, i] { found[i] = cache.FindOrCompute({}, [] { return Made("second"); }); });
    }
    return first;
  });
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(UserCache, ComputesAUserOnceForAllWhoAskAtOnce) {
  UserCache cache(1 << 20);
  for (const CachedOr& user : AskAtOnce(cache, 7, Made("first"))) {
    ASSERT_TRUE(user.ok()) << user.status();
    EXPECT_EQ((*user)->values, "first");
  }
  EXPECT_EQ(cache.stats().misses, 1);
  EXPECT_EQ(cache.stats().hits, 7);
}

TEST(UserCache, OneOfThoseWhoWaitComputesAfterAFailure) {
  UserCache cache(1 << 20);
  const std::vector<CachedOr> found = AskAtOnce(cache, 7, absl::DeadlineExceededError("late"));
  EXPECT_EQ(found[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  for (size_t i = 1; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].ok()) << found[i].status();
    EXPECT_EQ((*found[i])->values, "second");
  }
  EXPECT_EQ(cache.stats().misses, 2);
  EXPECT_EQ(cache.stats().hits, 6);
}

TEST(UserCache, AnEmptyOneCountsOn) {
  UserCache cache(1 << 20);
  AskAtOnce(cache, 3, Made("first"));
  const std::shared_ptr<UserCache> empty = cache.Empty();
  EXPECT_EQ(empty->stats().entries, 0);
  EXPECT_EQ((*AskAtOnce(*empty, 3, Made("third"))[0])->values, "third");
  EXPECT_EQ(empty->stats().misses, 2);
  EXPECT_EQ(empty->stats().hits, 6);
  EXPECT_EQ(cache.stats().hits, 6);  // Of calls that still run, too.
}

TEST(UserCache, ATooLargeUserIsComputedByEach) {
  UserCache cache(16);
  EXPECT_EQ((*AskAtOnce(cache, 3, Made("first"))[3])->values, "second");
  EXPECT_EQ(cache.stats().entries, 0);
}

// The user of one request with the ads of another.
std::vector<NamedTensor> UserWithAds(const Model& model, const OwnedRequest& user,
                                     const OwnedRequest& ads) {
  std::vector<NamedTensor> inputs = user.tensors();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputInfo& info = model.info().inputs[model.FindInput(inputs[i].name)];
    const Level level = info.feature >= 0 ? model.info().features[info.feature].level : info.level;
    if (level != Level::kUser) inputs[i] = ads.tensors()[i];
  }
  return inputs;
}

// Users alone: bit for bit.  Batches of known and new users: as batches without a cache.
void CheckModel(const Model& plain, const Model& cached, absl::Span<const NamedTensor> sample) {
  std::mt19937 random(7);
  std::vector<OwnedRequest> users;
  for (int u = 0; u < 6; ++u) {
    users.push_back(OwnedRequest::Make(plain.info(), sample, 3, 3, random));
  }
  for (const OwnedRequest& ads : users) {
    for (size_t u = 0; u < 3; ++u) {
      const auto inputs = UserWithAds(plain, users[u], ads);
      const Kept wanted = RunOnce(plain, inputs), got = RunOnce(cached, inputs);
      ASSERT_EQ(wanted.outputs.size(), got.outputs.size());
      for (size_t o = 0; o < wanted.outputs.size(); ++o) {
        EXPECT_EQ(wanted.outputs[o].dims, got.outputs[o].dims);
        EXPECT_EQ(wanted.outputs[o].values, got.outputs[o].values);
      }
      EXPECT_EQ(wanted.missing_ids, got.missing_ids);
    }
  }
  // Of six, three are known; then all.
  const OwnedRequest batch = OwnedRequest::Join(users);
  const std::vector<int64_t> ads(users.size(), 3);
  const Kept wanted = RunOnce(plain, batch.tensors(), {.ads_per_user = ads});
  for (int i = 0; i < 2; ++i) {
    const Kept got = RunOnce(cached, batch.tensors(), {.ads_per_user = ads});
    EXPECT_LE(testing::Difference(got.outputs, wanted.outputs), 1e-6);
    EXPECT_EQ(wanted.missing_ids, got.missing_ids);
  }
}

TEST_F(CachedModels, CommittedRandomGraphs) {
  int with_cache = 0;
  for (const testing::GraphCase& graph_case :
       testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/random.json")) {
    SCOPED_TRACE(graph_case.name);
    const std::string directory = testing::WriteModelDirectory(graph_case, base_);
    const std::string manifest = testing::InputManifest(graph_case);
    std::ofstream(directory + "/model.textproto") << manifest;
    const auto plain = Model::Load({.directory = directory});
    if (!plain.ok() || !(*plain)->info().proof_failure.empty()) continue;
    std::ofstream(directory + "/model.textproto") << manifest << kManyBytes;
    const auto cached = Model::Load({.directory = directory});
    ASSERT_TRUE(cached.ok()) << cached.status();
    const testing::CaseInputs inputs(graph_case.inputs);
    CheckModel(**plain, **cached, inputs.tensors());
    const CacheStats stats = (*cached)->user_cache();
    if (stats.entries == 0) continue;  // Nothing of it is computed from the user alone.
    ++with_cache;
    // Batches may run by the other plan, which has users of its own.
    EXPECT_GE(stats.hits, 3 * 5 + 6);
    EXPECT_LE(stats.misses, 3 + 6);
    EXPECT_EQ((*cached)->info().memory_bytes, (*plain)->info().memory_bytes + 100000000);
  }
  EXPECT_GT(with_cache, 50);
}

TEST_F(CachedModels, SaysWhereThereIsNothingToKeep) {
  const auto model = Load(testing::kTogether, kManyBytes);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().notices,
              ElementsAre(HasSubstr("user_cache_bytes has no effect: nothing is computed from")));
}

TEST_F(CachedModels, RefusesNegativeSizes) {
  const auto model = Load(testing::kTogether, "user_cache_bytes: -1");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("user_cache_bytes is -1, want 0 to 1099511627776"));
}

// -0 and 0, and NaNs of other bits, are other users: bytes decide.
TEST_F(CachedModels, TellsUsersApartByTheirBytes) {
  const auto model = Load(
      R"(layer_params { name: "r" type: "sigmoid_layer" bottom: "u" top: "s" }
        layer_params { name: "m" type: "multiply_layer" bottom: "s" bottom: "a" top: "y" })",
      kManyBytes);
  ASSERT_TRUE(model.ok()) << model.status();
  float ad[] = {1, 1};
  for (float first : {0.0f, -0.0f, 1.0f, 0.0f}) {
    float user[] = {first, 2};
    const std::vector<NamedTensor> inputs = {{"u", {DType::kFloat32, {1, 2}, user}},
                                             {"a", {DType::kFloat32, {1, 2}, ad}}};
    const Kept kept = RunOnce(**model, inputs);
    EXPECT_FLOAT_EQ(kept.outputs[0].values[0], 1 / (1 + std::exp(-first)));
  }
  EXPECT_EQ((*model)->user_cache().misses, 3);
  EXPECT_EQ((*model)->user_cache().hits, 1);
}

}  // namespace
}  // namespace ulfd::engine
