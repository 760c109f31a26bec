// Whole graphs against the float64 reference: committed random graphs, those that a generator made
// just now (ULFD_GRAPH_CASES, a file), and the reference's own cases beside the checkout where they
// are there.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "engine/runtime/model.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

constexpr double kTolerance = 1e-5;

// Every case in every way that a request may be cut.
void CheckCase(const testing::GraphCase& graph_case, const std::string& base) {
  SCOPED_TRACE(graph_case.name);
  const std::string directory = testing::WriteModelDirectory(graph_case, base);
  auto model = Model::Load({.directory = directory, .backend = testing::BackendOfEnvironment()});
  if (!graph_case.must_refuse.empty() && !model.ok()) {
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << model.status();
    return;
  }
  ASSERT_TRUE(model.ok()) << model.status();
  const testing::CaseInputs inputs(graph_case.inputs);
  Workspace workspace;
  RunResult result;
  const std::pair<int64_t, bool> ways[] = {
      {0, false}, {1, false}, {4, false}, {0, true}, {4, true}};
  for (const auto& [tile, reference] : ways) {
    const absl::Status status = (*model)->Run(
        inputs.tensors(), {.reference = reference, .tile_rows = tile}, workspace, result);
    if (!graph_case.must_refuse.empty()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << "reference refuses: " << graph_case.must_refuse << "; here: " << status;
      return;
    }
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(result.outputs.size(), graph_case.expected.size());
    for (const auto& [name, wanted] : graph_case.expected) {
      const int output = (*model)->FindOutput(name);
      ASSERT_GE(output, 0) << name;
      EXPECT_LE(testing::Error(result.outputs[output], wanted), kTolerance)
          << name << " " << ToString(result.outputs[output].dims) << " tile " << tile
          << (reference ? " as written" : "");
    }
  }
}

class GraphCases : public testing::ModelDirectories {
 protected:
  void CheckFile(const std::string& path) {
    for (const testing::GraphCase& graph_case : testing::ReadGraphCases(path)) {
      CheckCase(graph_case, base_);
    }
  }
};

TEST_F(GraphCases, CommittedRandomGraphs) {
  CheckFile(::ulfd::testing::TestData() + "/graphs/random.json");
  CheckFile(::ulfd::testing::TestData() + "/graphs/passes.json");
  CheckFile(::ulfd::testing::TestData() + "/graphs/images.json");
}

TEST_F(GraphCases, CasesOfTheReference) {
  const std::string path = ::ulfd::testing::SharedDir() + "/oracle/layer_cases.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  CheckFile(path);
}

TEST_F(GraphCases, FreshRandomGraphs) {
  const char* path = std::getenv("ULFD_GRAPH_CASES");
  if (path == nullptr || !std::filesystem::exists(path)) {
    GTEST_SKIP() << "ULFD_GRAPH_CASES names no file: tests/make_random_graphs.py makes one";
  }
  CheckFile(path);
}

}  // namespace
}  // namespace ulfd::engine
