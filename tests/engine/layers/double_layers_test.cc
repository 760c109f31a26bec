// double_layers of the manifest: what is grouped, what is refused, and that the scores of models
// whose magnitudes leave nothing of a float32 come out right.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ulfd::testing::CaseInputs;

// The mean of bn is a million times its deviation: x - mean has 2 correct digits in float32 where
// x comes out of an FC in float32.
constexpr char kGraph[] = R"(
layer_params { type: "input_layer" top: "u" top: "a" }
layer_params { name: "tower" type: "inner_product_layer" bottom: "u" top: "tower"
               inner_product_param { bias_term: false } }
layer_params { name: "fuse" type: "fuse_layer" bottom: "tower" bottom: "a" top: "fused" }
layer_params { name: "fc" type: "inner_product_layer" bottom: "fused" top: "fc" }
layer_params { name: "bn" type: "bn_layer" bottom: "fc" top: "bn" bn_param { eps: 0 } }
layer_params { name: "act" type: "relu_layer" bottom: "bn" top: "act" }
layer_params { name: "out" type: "add_layer" bottom: "act" bottom: "fc" top: "score" }
)";
constexpr char kWeights[] = R"(
layer_weights_params { name: "tower" blob_datas { shape: 1 shape: 1 data: [1] } }
layer_weights_params { name: "fc" blob_datas { shape: 2 shape: 1 data: [1, 0.1] }
                       blob_datas { shape: 1 data: [1000000] } }
layer_weights_params { name: "bn" blob_datas { shape: 1 data: [0] } blob_datas { shape: 1 data: [1] }
                       blob_datas { shape: 1 data: [1000000] } blob_datas { shape: 1 data: [1] } }
)";
constexpr char kInputs[] =
    "inputs { name: \"u\" level: INPUT_LEVEL_USER row_shape: 1 }\n"
    "inputs { name: \"a\" level: INPUT_LEVEL_AD row_shape: 1 }\n";

class DoubleLayers : public ::testing::Test {
 protected:
  DoubleLayers() { UseOneThread(); }
  absl::StatusOr<std::unique_ptr<const Model>> Load(const std::string& manifest,
                                                    const std::string& graph = kGraph) {
    fs::create_directories(temp_.File("m/1"));
    temp_.Write("m/1/graph_ulf.txt", graph);
    temp_.Write("m/1/weights.pb", kWeights);
    temp_.Write("m/1/model.textproto", absl::StrCat(kInputs, manifest));
    return Model::Load({.directory = temp_.File("m/1")});
  }
  std::string Error(const std::string& manifest) {
    const auto model = Load(manifest);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(model.status().message());
  }
  TempDir temp_;
};

TEST_F(DoubleLayers, KeepsTheDigitsThatFloat32Loses) {
  const CaseInputs inputs(
      {{"u", {"float32", {1, 1}, {0.25}}}, {"a", {"float32", {3, 1}, {1, 3, 0.015625}}}});
  // bn = 0.25 + a * float(0.1)
  const double tenth = double{0.1f};
  const float wanted[] = {static_cast<float>(0.25 + tenth), static_cast<float>(0.25 + 3 * tenth),
                          static_cast<float>(0.25 + 0.015625 * tenth)};
  Workspace workspace;
  RunResult result;
  for (const bool in_double : {false, true}) {
    const auto model =
        Load(absl::StrCat("outputs: 'act'\n", in_double ? "double_layers: ['fc', 'bn']" : ""));
    ASSERT_TRUE(model.ok()) << model.status();
    for (const bool reference : {false, true}) {
      ASSERT_TRUE(
          (*model)->Run(inputs.tensors(), {.reference = reference}, workspace, result).ok());
      for (int i = 0; i < 3; ++i) {
        const float found = result.outputs[0].f32()[i];
        if (in_double) {
          EXPECT_EQ(found, wanted[i]) << i;
        } else if (i == 2) {
          EXPECT_GT(std::abs(found - wanted[i]), 1e-4) << "float32 would do: the test is void";
        }
      }
    }
  }
}

TEST_F(DoubleLayers, JoinsWhatIsConnectedAndOfOneLevel) {
  const auto model = Load("double_layers: ['tower', 'fc', 'bn', 'out']");
  ASSERT_TRUE(model.ok()) << model.status();
  // "tower" is the user's; "act" lies between "bn" and "out", so that these do not go together with
  // "fc", which "out" reads, too.
  std::vector<std::string> names;
  for (const PlanStep& step : (*model)->WrittenPlan().steps) {
    if (step.type == "double") names.push_back(step.name);
  }
  EXPECT_THAT(names, ElementsAre("tower", "fc..bn", "out"));
  const ModelInfo& info = (*model)->info();
  ASSERT_GE(info.rewrites.size(), 3u);
  EXPECT_EQ(info.rewrites[1].pass, "double_layers");
  EXPECT_EQ(info.rewrites[1].text, "computed in double: fc, bn");
  EXPECT_THAT(info.rewrites[1].layers, ElementsAre(3, 4));
  EXPECT_TRUE(info.row_separable);
  ASSERT_TRUE((*model)->OptimisedPlan().has_value());
  EXPECT_EQ((*model)->OptimisedPlan()->user_steps, 1);
}

TEST_F(DoubleLayers, KeepsEveryTensorOfAGroup) {
  const auto model = Load("double_layers: ['fuse', 'fc', 'bn', 'act']");
  ASSERT_TRUE(model.ok()) << model.status();
  const CaseInputs inputs({{"u", {"float32", {1, 1}, {2}}}, {"a", {"float32", {2, 1}, {10, 20}}}});
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {.keep_all = true}, workspace, result).ok());
  std::vector<std::string> names;
  for (const NamedTensor& tensor : result.tensors) names.emplace_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("tower", "fused", "fc", "bn", "act", "score"));
  EXPECT_EQ(result.tensors[1].tensor.f32()[3], 20);
  EXPECT_FLOAT_EQ(result.tensors[2].tensor.f32()[1], 1000004);
  EXPECT_FLOAT_EQ(result.tensors[3].tensor.f32()[1], 4);
}

TEST_F(DoubleLayers, RefusesWhatItCannotDo) {
  const std::string prefix = "model \"m\" v1: manifest: double_layers names ";
  EXPECT_EQ(Error("double_layers: 'fd'"), prefix + "\"fd\", which is no layer of the graph");
  EXPECT_EQ(Error("double_layers: ''"), prefix + "\"\", which is no layer of the graph");
  EXPECT_EQ(Error("double_layers: ['fc', 'bn', 'fc']"), prefix + "\"fc\" twice");
  std::string graph = kGraph;
  graph.replace(graph.find("\"act\" type: \"relu_layer\""), 24,
                "\"act\" type: \"broadcast_to_layer\"");
  graph.insert(graph.find("bottom: \"bn\" top: \"act\""), "bottom: \"bn\" ");
  const auto model = Load("double_layers: 'act'", graph);
  EXPECT_THAT(
      std::string(model.status().message()),
      HasSubstr(prefix + "layer 5 \"act\" (broadcast_to_layer), a type that is not computed "
                         "in double; these are: inner_product_layer, "));
}

// ------------------------------------------------------------------------------ random graphs

// Layers of the graph with a type that can be computed in double, about half of them.
std::vector<std::string> SomeLayers(const ModelInfo& info, std::mt19937& random) {
  std::vector<std::string> names;
  for (const LayerInfo& layer : info.layers) {
    bool floats = true;
    for (const std::string& bottom : layer.bottoms) floats &= bottom != "mask";
    const bool possible = floats && layer.type != "input_layer" &&
                          layer.type != "embedding_layer" && layer.type != "where_layer" &&
                          layer.type != "gru_layer" && layer.type != "batchdot_layer" &&
                          layer.type != "constant_layer" && layer.type != "broadcast_to_layer";
    if (possible && random() % 2 == 0) names.push_back(layer.name);
  }
  return names;
}

void CheckRandomGraphs(const std::string& path, const TempDir& temp) {
  std::mt19937 random(7);
  int64_t grouped = 0;
  for (const auto& graph_case : ulfd::testing::ReadGraphCases(path)) {
    SCOPED_TRACE(graph_case.name);
    const std::string directory = ulfd::testing::WriteModelDirectory(graph_case, temp.path());
    const auto plain = Model::Load({.directory = directory});
    if (!plain.ok()) continue;
    const std::vector<std::string> names = SomeLayers((*plain)->info(), random);
    std::ofstream(directory + "/model.textproto", std::ios::app)
        << "double_layers: ['" << absl::StrJoin(names, "', '") << "']\n";
    if (names.empty()) continue;
    const auto model = Model::Load({.directory = directory});
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->info().row_separable, (*plain)->info().row_separable);
    for (const PlanStep& step : (*model)->WrittenPlan().steps) grouped += step.layers.size() > 1;
    const CaseInputs inputs(graph_case.inputs);
    Workspace workspace;
    RunResult result;
    for (const bool reference : {false, true}) {
      for (const int64_t tile : {0, 2}) {
        const absl::Status status = (*model)->Run(
            inputs.tensors(), {.reference = reference, .tile_rows = tile}, workspace, result);
        ASSERT_TRUE(status.ok()) << status;
        for (const auto& [name, wanted] : graph_case.expected) {
          EXPECT_LE(ulfd::testing::Error(result.outputs[(*model)->FindOutput(name)], wanted), 1e-5)
              << name << " with " << absl::StrJoin(names, " ");
        }
      }
    }
  }
  EXPECT_GT(grouped, 20) << "no groups: the test is void";
}

TEST_F(DoubleLayers, CommittedRandomGraphs) {
  CheckRandomGraphs(::ulfd::testing::TestData() + "/graphs/random.json", temp_);
}

TEST_F(DoubleLayers, FreshRandomGraphs) {
  const char* path = std::getenv("ULFD_GRAPH_CASES");
  if (path == nullptr || !fs::exists(path)) GTEST_SKIP() << "ULFD_GRAPH_CASES names no file";
  CheckRandomGraphs(path, temp_);
}

}  // namespace
}  // namespace ulfd::engine
