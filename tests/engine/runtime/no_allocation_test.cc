// A warm Model::Run allocates nothing: for one user and several, for both plans and by numpy's
// rules, whatever the number of ads.  Counted by standing in for malloc, so that oneDNN's
// allocations count, too.  Not so: convolution, whose primitives are oneDNN's (decision 0010).
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/bench/bench_models.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/user_batch.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using testing::Allocations;
using testing::OwnedRequest;

TEST(AllocationCounter, Counts) {
  testing::StartCounting();
  const std::string* volatile text = new std::string(100, 'a');  // Two: the object and its text.
  void* volatile block = std::malloc(100);
  const Allocations found = testing::StopCounting();
  std::free(block);
  delete text;
  EXPECT_EQ(found.own, 3);
  EXPECT_EQ(found.library, 0);
}

// Which way requests go.
enum class Way { kOptimised, kAsWritten, kGenerally };

// Several requests of a model, over and over: what they allocate once the workspace is warm.
Allocations CountWarm(const Model& model, absl::Span<const NamedTensor> sample, Way way) {
  std::mt19937 random(1);
  std::vector<std::vector<int64_t>> batches = {{1}, {7}, {200}, {700}};
  if (way != Way::kGenerally) batches.push_back({5, 0, 200, 3});  // keep_all takes one user.
  std::vector<OwnedRequest> requests;
  for (const std::vector<int64_t>& ads : batches) {
    std::vector<OwnedRequest> users;
    for (int64_t n : ads) users.push_back(OwnedRequest::Make(model.info(), sample, n, 3, random));
    requests.push_back(OwnedRequest::Join(users));
  }
  Workspace workspace;
  RunResult result;
  Allocations counted;
  for (const bool warm : {false, true}) {
    testing::StartCounting();
    for (size_t i = 0; i < requests.size(); ++i) {
      RunOptions options{.keep_all = way == Way::kGenerally, .reference = way == Way::kAsWritten};
      if (batches[i].size() > 1) options.ads_per_user = batches[i];
      const absl::Status status = model.Run(requests[i].tensors(), options, workspace, result);
      if (!status.ok()) ADD_FAILURE() << status;
    }
    counted = testing::StopCounting();
    EXPECT_TRUE(warm || counted.own > 0);
  }
  return counted;
}

void ExpectNone(const Model& model, absl::Span<const NamedTensor> sample) {
  SCOPED_TRACE(model.info().name);
  for (const Way way : {Way::kOptimised, Way::kAsWritten, Way::kGenerally}) {
    const Allocations found = CountWarm(model, sample, way);
    EXPECT_EQ(found.own, 0) << "way " << static_cast<int>(way);
    EXPECT_EQ(found.library, 0) << "way " << static_cast<int>(way);
  }
}

TEST(NoAllocation, RandomGraphs) {
  UseOneThread();
  const TempDir base;
  int models = 0;
  for (const testing::GraphCase& graph_case :
       testing::ReadGraphCases(testing::TestData() + "/graphs/random.json")) {
    if (absl::EndsWith(graph_case.name, "_ads1")) continue;  // Cannot tell whose a row is.
    const std::string directory = testing::WriteModelDirectory(graph_case, base.path());
    std::ofstream(directory + "/model.textproto") << testing::InputManifest(graph_case);
    const auto model = Model::Load({.directory = directory});
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_EQ((*model)->info().proof_failure, "");
    ++models;
    const testing::CaseInputs inputs(graph_case.inputs);
    ExpectNone(**model, inputs.tensors());
  }
  EXPECT_GT(models, 5);
}

// Plans for shapes that requests showed.
TEST(NoAllocation, PlansByWhatRequestsShow) {
  UseOneThread();
  testing::GraphCase graph_case;
  graph_case.name = "open";
  graph_case.graph =
      "layer_params { type: \"input_layer\" top: \"x\" top: \"y\" }"
      "layer_params { name: \"sum\" type: \"add_layer\" bottom: \"x\" bottom: \"y\" top: \"sum\" }";
  const TempDir base;
  const auto model =
      Model::Load({.directory = testing::WriteModelDirectory(graph_case, base.path())});
  ASSERT_TRUE(model.ok()) << model.status();
  const testing::CaseInputs sample({{"x", {"float32", {5, 3}, std::vector<double>(15, 1)}},
                                    {"y", {"float32", {5, 3}, std::vector<double>(15, 2)}}});
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(sample.tensors(), {}, workspace, result).ok());
  ASSERT_EQ((*model)->MakePlans({}, 1 << 30).size(), 1);
  ExpectNone(**model, sample.tensors());
  ASSERT_TRUE((*model)->Run(sample.tensors(), {}, workspace, result).ok());
  EXPECT_FALSE(result.stats.unproved);
}

// What the demo has: lookups, DIN's attention, a user's part of a wide layer.
TEST(NoAllocation, ModelsOfTheBenchmarks) {
  UseOneThread();
  const auto user_mlp = [](bench::ScratchModel& m) {
    bench::BuildUserMlp(m, 732, 306, {200, 80, 2}, "relu_layer");
  };
  const std::pair<std::string, std::function<void(bench::ScratchModel&)>> builds[] = {
      {"din", bench::BuildDin}, {"lookups", bench::BuildDinWithLookups}, {"user_mlp", user_mlp}};
  for (const auto& [name, build] : builds) {
    bench::ScratchModel scratch;
    build(scratch);
    const bench::TempDirectory directory;
    const auto model = scratch.Load(directory.path());
    ASSERT_TRUE(model.ok()) << model.status();
    SCOPED_TRACE(name);
    EXPECT_EQ((*model)->info().not_optimised, "");
    const bench::MadeUpRequest sample((*model)->info(), 3, 4, 100);
    ExpectNone(**model, sample.inputs());
  }
}

TEST(NoAllocation, ExportedModels) {
  UseOneThread();
  for (const std::string name : {"din", "tdm_dnn"}) {
    const fs::path directory = fs::path(testing::SharedDir()) / "models" / name;
    if (!fs::exists(directory)) GTEST_SKIP() << directory << " is not there";
    const auto model = Model::Load({.directory = (directory / "1").string()});
    ASSERT_TRUE(model.ok()) << model.status();
    const testing::CaseInputs sample(
        testing::ReadArrays((directory / "cases" / "u1_a7.in.npz").string()));
    ExpectNone(**model, sample.tensors());
  }
}

}  // namespace
}  // namespace ulfd::engine
