// The demo model loads, is the same for the same seed, and ranks by the preferences that were
// planted.
// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/demo_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "engine/weights/npz.h"
#include "tests/testing/temp_dir.h"
#include "tools/cli/commands.h"

namespace ulfd::tools {
namespace {

using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::string MakeDemo(const TempDir& dir, const std::string& name, const std::string& seed) {
  const absl::Status status = RunMakeDemo(
      std::vector<std::string>{dir.path(), "--ids=2000", "--name=" + name, "--seed=" + seed});
  EXPECT_TRUE(status.ok()) << status;
  return dir.path() + "/" + name;
}

std::unique_ptr<const engine::Model> Load(const std::string& directory) {
  engine::UseOneThread();
  auto model = engine::Model::Load({.directory = directory});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

// Names of the ads, best first.
std::vector<std::string> Ranking(const std::string& model_dir, const std::string& user) {
  const auto model = Load(model_dir + "/1");
  auto arrays = engine::ReadNpz(model_dir + "/requests/" + user + ".npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status();
  std::vector<engine::NamedTensor> inputs;
  for (auto& [name, array] : *arrays) {
    engine::Tensor tensor;
    tensor.dtype = model->info().inputs[model->FindInput(name)].dtype;
    tensor.dims.assign(array.dims.begin(), array.dims.end());
    tensor.data = array.bytes.data();
    inputs.push_back({.name = name, .tensor = tensor});
  }
  engine::Workspace workspace;
  engine::RunResult result;
  const absl::Status status = model->Run(inputs, {}, workspace, result);
  EXPECT_TRUE(status.ok()) << status;
  const engine::Tensor& ctr = result.outputs.at(0);
  std::vector<std::string> names;
  std::ifstream file(model_dir + "/requests/" + user + ".ads");
  for (std::string line; std::getline(file, line);) names.push_back(line);
  EXPECT_EQ(static_cast<int64_t>(names.size()), ctr.elements());
  std::vector<int> order(names.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return ctr.f32()[a] > ctr.f32()[b]; });
  std::vector<std::string> ranked;
  for (const int i : order) ranked.push_back(names[i]);
  return ranked;
}

TEST(DemoModelTest, LoadsWithoutNoticesAndProvesItsAdsIndependent) {
  const TempDir dir;
  const auto model = Load(MakeDemo(dir, "shop", "1") + "/1");
  const engine::ModelInfo& info = model->info();
  EXPECT_TRUE(info.notices.empty()) << info.notices[0];
  EXPECT_TRUE(info.row_separable);
  int64_t ids = 0;
  for (const engine::TableInfo& table : info.tables) ids += table.rows;
  EXPECT_EQ(ids, 2000);
  ASSERT_EQ(info.outputs.size(), 1u);
  EXPECT_EQ(info.outputs[0].name, "ctr");
  EXPECT_EQ(info.outputs[0].level, engine::Level::kAd);
}

TEST(DemoModelTest, TheHistoryDecides) {
  const TempDir dir;
  const std::string model = MakeDemo(dir, "shop", "1");
  const std::vector<std::string> sports = Ranking(model, "sports_fan");
  EXPECT_THAT(sports[0], HasSubstr("(sports"));
  EXPECT_THAT(sports[1], HasSubstr("(sports"));
  EXPECT_THAT(sports[2], HasSubstr("(books"));
  const std::vector<std::string> cook = Ranking(model, "cook");
  EXPECT_THAT(cook[0], HasSubstr("(cooking"));
  EXPECT_THAT(cook[1], HasSubstr("(cooking"));
  EXPECT_THAT(cook[2], HasSubstr("(garden"));
  EXPECT_THAT(cook[3], HasSubstr("(garden"));
}

TEST(DemoModelTest, PreferencesDoNotDependOnTheSeed) {
  const TempDir dir;
  for (const char* seed : {"2", "77", "1000000007"}) {
    const std::vector<std::string> gamer = Ranking(MakeDemo(dir, seed, seed), "gamer");
    EXPECT_THAT(gamer[0], HasSubstr("gaming")) << seed;
    EXPECT_THAT(gamer[1], HasSubstr("gaming")) << seed;
    EXPECT_THAT(gamer[2], HasSubstr("electronics")) << seed;
  }
}

TEST(DemoModelTest, SameSeedSameBytes) {
  const TempDir dir, other;
  const auto first = Load(MakeDemo(dir, "shop", "5") + "/1");
  const auto again = Load(MakeDemo(other, "shop", "5") + "/1");
  const auto different = Load(MakeDemo(dir, "else", "6") + "/1");
  EXPECT_EQ(first->info().content_hash, again->info().content_hash);
  EXPECT_NE(first->info().content_hash, different->info().content_hash);
}

TEST(DemoModelTest, AnotherManifestIsAnotherContent) {
  const TempDir dir;
  const std::string version = MakeDemo(dir, "shop", "5") + "/1";
  const std::string before = Load(version)->info().content_hash;
  std::ofstream(version + "/model.textproto", std::ios::app) << "trunc_all: true\n";
  EXPECT_NE(Load(version)->info().content_hash, before);
}

TEST(DemoModelTest, RefusesToOverwriteUnlessForced) {
  const TempDir dir;
  MakeDemo(dir, "shop", "1");
  const absl::Status refused = RunMakeDemo(std::vector<std::string>{dir.path(), "--name=shop"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), EndsWith("shop/1 exists; --force replaces it"));
  EXPECT_TRUE(
      RunMakeDemo(std::vector<std::string>{dir.path(), "--name=shop", "--ids=1000", "--force"})
          .ok());
  // Nothing but the version and its requests stays behind.
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path() + "/shop")) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("1", "requests"));
}

TEST(DemoModelTest, RefusesBadFlags) {
  const TempDir dir;
  for (const char* flag : {"--ids=999", "--ids=100000001", "--seed=-1", "--name=", "--name=a/b"}) {
    const absl::Status status = RunMakeDemo(std::vector<std::string>{dir.path(), flag});
    EXPECT_TRUE(IsUsageError(status)) << flag << ": " << status;
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(DemoWorldTest, EmbeddingDirectionsAreOrthonormal) {
  const DemoWorld world(1000, 3);
  for (int a = 0; a < kDemoCategories; ++a) {
    for (int b = 0; b < kDemoCategories; ++b) {
      const DemoVector x = world.CategoryRow(a), y = world.CategoryRow(b);
      EXPECT_NEAR(std::inner_product(x.begin(), x.end(), y.begin(), 0.0), a == b ? 1 : 0, 1e-12);
    }
  }
}

}  // namespace
}  // namespace ulfd::tools
