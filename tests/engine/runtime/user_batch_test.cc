// Batches of users against each user alone: the committed random graphs, the fresh ones
// (ULFD_GRAPH_CASES), the reference's cases of single layers and the exported models, both plans,
// whole and in small tiles.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/user_batch.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using testing::OwnedRequest;

constexpr double kTolerance = 1e-6;

struct Counts {
  int models = 0, compared = 0, alone = 0;
};

// A batch of users with `ads` ads each, against each of them alone.  Models that refuse such a user
// even alone are left out.
void CheckBatch(const Model& model, absl::Span<const NamedTensor> sample,
                const std::vector<int64_t>& ads, const RunOptions& base, double tolerance,
                Counts& counts) {
  std::mt19937 random(static_cast<uint32_t>(ads.size() * 1000 + ads[0]));
  Workspace workspace;
  RunResult result;
  std::vector<OwnedRequest> users;
  std::vector<std::vector<testing::OwnedOutput>> wanted;
  RunOptions options = base;
  for (int64_t n : ads) {
    users.push_back(OwnedRequest::Make(model.info(), sample, n, 3, random));
    if (!model.Run(users.back().tensors(), options, workspace, result).ok()) return;
    wanted.push_back(testing::Keep(result));
  }
  const OwnedRequest batch = OwnedRequest::Join(users);
  options.ads_per_user = ads;
  const absl::Status status = model.Run(batch.tensors(), options, workspace, result);
  if (absl::IsUnimplemented(status)) {
    ++counts.alone;
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_LE(testing::Difference(testing::Keep(result), testing::Join(model.info(), wanted)),
            tolerance)
      << ads.size() << " users, the first with " << ads[0] << " ads, tile " << base.tile_rows
      << (base.reference ? ", as written" : "") << (result.stats.unproved ? ", unproved" : "");
  ++counts.compared;
}

void CheckModel(const Model& model, absl::Span<const NamedTensor> sample, double tolerance,
                Counts& counts) {
  const std::vector<int64_t> batches[] = {
      {5}, {1, 1}, {5, 0}, {0, 0}, {1, 200, 5}, {5, 0, 1, 3, 0, 7, 2}, std::vector<int64_t>(70, 1)};
  ++counts.models;
  for (const std::vector<int64_t>& ads : batches) {
    for (const int64_t tile : {0, 1, 4}) {
      CheckBatch(model, sample, ads, {.tile_rows = tile}, tolerance, counts);
    }
    CheckBatch(model, sample, ads, {.reference = true}, tolerance, counts);
  }
}

class UserBatch : public testing::ModelDirectories {
 protected:
  // stated: a manifest says what the graph does not; cases of a single ad cannot tell whose a row
  // is.
  Counts CheckFile(const std::string& path, bool stated) {
    Counts counts;
    for (const testing::GraphCase& graph_case : testing::ReadGraphCases(path)) {
      SCOPED_TRACE(graph_case.name);
      if (stated && absl::EndsWith(graph_case.name, "_ads1")) continue;
      const std::string directory = testing::WriteModelDirectory(graph_case, base_);
      if (stated)
        std::ofstream(directory + "/model.textproto") << testing::InputManifest(graph_case);
      const auto model = Model::Load({.directory = directory});
      if (!model.ok()) continue;
      const testing::CaseInputs inputs(graph_case.inputs);
      CheckModel(**model, inputs.tensors(), kTolerance, counts);
    }
    std::cout << counts.models << " models, " << counts.compared << " batches, " << counts.alone
              << " more that run user by user\n";
    return counts;
  }
};

TEST_F(UserBatch, CommittedRandomGraphs) {
  EXPECT_GT(CheckFile(::ulfd::testing::TestData() + "/graphs/random.json", false).compared, 1000);
}

TEST_F(UserBatch, CommittedRandomGraphsWithManifests) {
  const Counts counts = CheckFile(::ulfd::testing::TestData() + "/graphs/random.json", true);
  EXPECT_GT(counts.compared, 1000);
  EXPECT_EQ(counts.alone, 0);  // Their rows are proved.
}

TEST_F(UserBatch, CasesOfTheReference) {
  const std::string path = ::ulfd::testing::SharedDir() + "/oracle/layer_cases.json";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  EXPECT_GT(CheckFile(path, false).compared, 900);
  const Counts stated = CheckFile(path, true);
  EXPECT_GT(stated.compared, 500);
  EXPECT_LT(stated.alone, stated.compared);
}

TEST_F(UserBatch, FreshRandomGraphs) {
  const char* path = std::getenv("ULFD_GRAPH_CASES");
  if (path == nullptr || !fs::exists(path)) GTEST_SKIP() << "ULFD_GRAPH_CASES names no file";
  EXPECT_GT(CheckFile(path, true).compared, 0);
}

TEST_F(UserBatch, ExportedModels) {
  // tdm_dnn is ill-conditioned (see real_models_test.cc): GEMMs over other numbers of rows may
  // round otherwise, and 1e-7 becomes 1e-2.
  const std::pair<const char*, double> models[] = {{"din", kTolerance}, {"tdm_dnn", 3e-2}};
  for (const auto& [name, tolerance] : models) {
    SCOPED_TRACE(name);
    const fs::path directory = fs::path(::ulfd::testing::SharedDir()) / "models" / name;
    if (!fs::exists(directory)) GTEST_SKIP() << directory << " is not there";
    const auto model = Model::Load({.directory = (directory / "1").string()});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().proof_failure, "");
    const testing::CaseInputs sample(
        testing::ReadArrays((directory / "cases" / "u1_a7.in.npz").string()));
    Counts counts;
    CheckModel(**model, sample.tensors(), tolerance, counts);
    EXPECT_GE(counts.compared, 20);
    EXPECT_EQ(counts.alone, 0);
  }
}

}  // namespace
}  // namespace ulfd::engine
