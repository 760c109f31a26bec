// One request cut into ranges of ads that several threads compute at the same time.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"
#include "tests/testing/user_batch.h"

namespace ulfd::engine {
namespace {

using testing::OwnedRequest;

constexpr double kTolerance = 1e-6;

// Like Model::Run, with half of the ads on a thread of its own.  `result` is valid as long as
// `part`.
absl::Status RunOnTwoThreads(const Model& model, absl::Span<const NamedTensor> inputs,
                             const RunOptions& options, SharedUserPart& part, Workspace& workspace,
                             RunResult& result) {
  RETURN_IF_ERROR(model.RunUserPart(inputs, options, workspace, part, result));
  const int64_t ads = part.ads(), half = ads / 2;
  if (ads == 0) return absl::OkStatus();
  Workspace other_workspace;
  RunStats stats, other_stats;
  absl::Status other_status;
  std::thread other([&] {
    UseOneThread();
    other_status =
        model.RunAds(part, options, half, ads, other_workspace, result.outputs, other_stats);
  });
  const absl::Status status =
      model.RunAds(part, options, 0, half, workspace, result.outputs, stats);
  other.join();
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(other_status);
  AddAds(stats, result.stats);
  AddAds(other_stats, result.stats);
  return absl::OkStatus();
}

class SplitRun : public testing::ModelDirectories {};

TEST_F(SplitRun, ThreadsComputeWhatOneComputes) {
  int split = 0, whole = 0;
  for (const testing::GraphCase& graph_case :
       testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/random.json")) {
    if (absl::EndsWith(graph_case.name, "_ads1")) continue;  // Cannot tell whose a row is.
    SCOPED_TRACE(graph_case.name);
    const std::string directory = testing::WriteModelDirectory(graph_case, base_);
    // Every other model says nothing of its inputs, and is proved nothing: one user at a time.
    const bool proved = (split + whole) % 2 == 0;
    if (proved) {
      std::ofstream(directory + "/model.textproto") << testing::InputManifest(graph_case);
    }
    const auto model = Model::Load({.directory = directory});
    ASSERT_TRUE(model.ok()) << model.status();
    const testing::CaseInputs sample(graph_case.inputs);
    std::mt19937 random(7);
    const std::vector<int64_t> ads =
        proved ? std::vector<int64_t>{60, 0, 41} : std::vector<int64_t>{60};
    std::vector<OwnedRequest> users;
    for (int64_t n : ads) {
      users.push_back(OwnedRequest::Make((*model)->info(), sample.tensors(), n, 3, random));
    }
    const OwnedRequest batch = OwnedRequest::Join(users);
    RunOptions options{.count_layers = true};
    if (proved) options.ads_per_user = ads;
    Workspace workspace;
    RunResult result;
    ASSERT_TRUE((*model)->Run(batch.tensors(), options, workspace, result).ok());
    const auto wanted = testing::Keep(result);
    const RunStats stats = result.stats;

    SharedUserPart part;
    ASSERT_TRUE(RunOnTwoThreads(**model, batch.tensors(), options, part, workspace, result).ok());
    EXPECT_LE(testing::Difference(testing::Keep(result), wanted), kTolerance);
    EXPECT_EQ(result.stats.missing_ids, stats.missing_ids);
    EXPECT_EQ(result.stats.unproved, stats.unproved);
    for (size_t l = 0; l < stats.layers.size(); ++l) {
      EXPECT_EQ(result.stats.layers[l].rows, stats.layers[l].rows) << "layer " << l;
    }
    ++(stats.unproved ? whole : split);
  }
  EXPECT_GT(split, 5);
  EXPECT_GT(whole, 5);
}

TEST_F(SplitRun, RangesMayBeOfAnySizeAndOrder) {
  const std::vector<testing::GraphCase> cases =
      testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/random.json");
  const testing::GraphCase& graph_case = cases[1];
  const std::string directory = testing::WriteModelDirectory(graph_case, base_);
  std::ofstream(directory + "/model.textproto") << testing::InputManifest(graph_case);
  const auto model = Model::Load({.directory = directory});
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->info().proof_failure, "");
  const testing::CaseInputs sample(graph_case.inputs);
  std::mt19937 random(7);
  const OwnedRequest request =
      OwnedRequest::Make((*model)->info(), sample.tensors(), 20, 3, random);
  Workspace first, second;
  RunResult result;
  ASSERT_TRUE((*model)->Run(request.tensors(), {}, first, result).ok());
  const auto wanted = testing::Keep(result);
  SharedUserPart part;
  ASSERT_TRUE((*model)->RunUserPart(request.tensors(), {}, first, part, result).ok());
  ASSERT_EQ(part.ads(), 20);
  RunStats stats;
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{13, 20}, {0, 1}, {1, 13}, {13, 13}}) {
    const absl::Status status =
        (*model)->RunAds(part, {}, begin, end, begin == 0 ? first : second, result.outputs, stats);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_LE(testing::Difference(testing::Keep(result), wanted), kTolerance) << graph_case.name;
  const absl::Status status = (*model)->RunAds(part, {}, 13, 21, second, result.outputs, stats);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "model \"" + (*model)->info().name + "\" v1: ads [13, 21) of a request of 20");
}

TEST_F(SplitRun, AnErrorOfOneThreadIsTheRequests) {
  const std::vector<testing::GraphCase> cases =
      testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/random.json");
  const auto model = Model::Load({.directory = testing::WriteModelDirectory(cases[0], base_)});
  ASSERT_TRUE(model.ok()) << model.status();
  SharedUserPart part;
  Workspace workspace;
  RunResult result;
  const absl::Status status = RunOnTwoThreads(**model, {}, {}, part, workspace, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::atomic<int> polls = 0;
  const std::function<bool()> stop = [&] { return ++polls > 3; };
  const testing::CaseInputs inputs(cases[0].inputs);
  EXPECT_EQ(
      RunOnTwoThreads(**model, inputs.tensors(), {.stop = &stop}, part, workspace, result).code(),
      absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace ulfd::engine
