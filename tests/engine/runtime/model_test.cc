// Loading and running whole models: what is computed once, what is refused and with which words.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/model.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/directory/load_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/two_features.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ulfd::testing::CaseInputs;

// Two FCs: one on the user, one on user and ad together.
constexpr char kLayers[] = R"(
layer_params { name: "tower" type: "inner_product_layer" bottom: "u" top: "tower" }
layer_params { name: "fuse" type: "fuse_layer" bottom: "tower" bottom: "a" top: "fused" }
layer_params { name: "fc" type: "inner_product_layer" bottom: "fused" top: "score" }
)";
constexpr char kWeights[] = R"(
layer_weights_params { name: "tower" blob_datas { shape: 2 shape: 2 data: [1, 2, 3, 4] }
                       blob_datas { shape: 2 data: [0, 1] } }
layer_weights_params { name: "fc" blob_datas { shape: 4 shape: 1 data: [1, 1, 1, 1] }
                       blob_datas { shape: 1 data: [0.5] } }
)";

std::string Graph() { return absl::StrCat(testing::kTwoFeatures, kLayers); }

class ModelTest : public testing::ModelDirectories {
 protected:
  ModelTest() {
    case_.name = "rank";
    case_.graph = Graph();
    case_.weights_text = kWeights;
    case_.confs = testing::TwoFeaturesConfs(/*dim=*/2);
    case_.tables = {{"t", "1,1,2\n2,10,20\n-3,100,200\n"}};
  }

  absl::StatusOr<std::unique_ptr<const Model>> Load() {
    fs::remove_all(base_);
    directory_ = ulfd::testing::WriteModelDirectory(case_, base_);
    for (const auto& [name, text] : files_) std::ofstream(directory_ + "/" + name) << text;
    return Model::Load({.directory = directory_});
  }
  // With a dense input "x" of three columns, and `more` in the manifest.
  absl::StatusOr<std::unique_ptr<const Model>> LoadBesideNumbers(const std::string& more) {
    case_.graph = Graph() +
                  "layer_params { type: \"input_layer\" top: \"x\" }"
                  "layer_params { type: \"relu_layer\" bottom: \"x\" top: \"y\" }";
    files_["model.textproto"] = "inputs { name: \"x\" row_shape: 3 }\n" + more;
    return Load();
  }
  // The error of loading after `from` in the graph is replaced by `to`.
  std::string LoadError(const std::string& from, const std::string& to) {
    const size_t at = case_.graph.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    case_.graph.replace(at, from.size(), to);
    const auto model = Load();
    EXPECT_FALSE(model.ok()) << "loads";
    return std::string(model.status().message());
  }

  ulfd::testing::GraphCase case_;
  std::map<std::string, std::string> files_;
  std::string directory_;
};

std::map<std::string, ulfd::testing::CaseArray> Request() {
  return {{"u.ids", {"int64", {2}, {1, 2}}}, {"a.ids", {"int64", {3}, {1, -3, 77}}}};
}

TEST_F(ModelTest, ComputesTheUserOnceAndFillsInDefaults) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->info().row_separable);
  Workspace workspace;
  RunResult result;
  const CaseInputs inputs(Request());
  ASSERT_TRUE((*model)
                  ->Run(inputs.tensors(), {.count_layers = true, .reference = true, .tile_rows = 2},
                        workspace, result)
                  .ok());
  // u = [11, 22]; tower = [11+66, 22+88+1] = [77, 111]; score = 77 + 111 + a + 0.5.
  ASSERT_EQ(result.outputs.size(), 1u);
  EXPECT_EQ(ToString(result.outputs[0].dims), "[3, 1]");
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[0], 191.5f);
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[1], 488.5f);
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[2], 188.5f);
  EXPECT_EQ(result.stats.layers[1].runs, 1);  // user embedding
  EXPECT_EQ(result.stats.layers[3].rows, 1);  // tower
  EXPECT_EQ(result.stats.layers[5].runs, 2);  // fc: tiles of 2 and 1
  EXPECT_EQ(result.stats.layers[5].rows, 3);
  EXPECT_EQ(result.stats.missing_ids, std::vector<int64_t>{1});
}

// On some CPUs a run over denormal numbers takes a hundred times as long, which a caller may want.
TEST_F(ModelTest, DenormalNumbersCountAsZeros) {
  case_.tables = {{"t", "1,1e-40,0\n"}};
  case_.weights_text = absl::StrReplaceAll(kWeights, {{"[1, 1, 1, 1]", "[0, 0, 1e38, 0]"}});
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const CaseInputs inputs(std::map<std::string, ulfd::testing::CaseArray>{
      {"u.ids", {"int64", {1}, {2}}}, {"a.ids", {"int64", {2}, {1, 2}}}});
  volatile float denormal = 1e-40f;
  Workspace workspace;
  RunResult result;
  for (const bool reference : {false, true}) {
    ASSERT_TRUE((*model)->Run(inputs.tensors(), {.reference = reference}, workspace, result).ok());
    EXPECT_EQ(result.outputs[0].f32()[0], 0.5f) << "without 1e-40 x 1e38, which is 0.01";
    EXPECT_GT(denormal * 1e38f, 0) << "the caller's own arithmetic stays";
  }
  SharedUserPart part;
  ASSERT_TRUE((*model)->RunUserPart(inputs.tensors(), {}, workspace, part, result).ok());
  if (part.ads() > 0) {
    ASSERT_TRUE(
        (*model)->RunAds(part, {}, 0, part.ads(), workspace, result.outputs, result.stats).ok());
  }
  EXPECT_EQ(result.outputs[0].f32()[0], 0.5f);
  EXPECT_GT(denormal * 1e38f, 0);
}

TEST_F(ModelTest, DescribesItself) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.name, "rank");
  EXPECT_EQ(info.version, 1);
  ASSERT_EQ(info.features.size(), 2u);
  EXPECT_EQ(info.features[0].name, "u");
  EXPECT_EQ(info.features[0].level, Level::kUser);
  EXPECT_EQ(info.features[1].level, Level::kAd);
  EXPECT_EQ(info.features[1].tables, std::vector<int>{0});
  ASSERT_EQ(info.outputs.size(), 1u);
  EXPECT_EQ(info.outputs[0].shape.ToString(), "[ads, 1]");
  EXPECT_EQ(info.outputs[0].level, Level::kAd);
  EXPECT_EQ(info.inputs[0].dtype, DType::kInt64);
  EXPECT_EQ(info.inputs[2].shape.ToString(), "[users]");
  EXPECT_EQ(info.layers.size(), 6u);
  EXPECT_EQ(info.layers[3].top_shapes[0].ToString(), "[users, 2]");
  EXPECT_EQ(info.content_hash.size(), 32u);
}

TEST_F(ModelTest, RunsTheOptimisedPlanWhereItsShapesHold) {
  case_.graph = R"(
    layer_params { type: "input_layer" top: "x" top: "y" }
    layer_params { name: "tower" type: "inner_product_layer" bottom: "x" top: "tower" }
    layer_params { name: "sum" type: "add_layer" bottom: "tower" bottom: "y" top: "score" })";
  case_.weights_text = R"(
    layer_weights_params { name: "tower" blob_datas { shape: 2 shape: 2 data: [1, 2, 3, 4] }
                           blob_datas { shape: 2 data: [0, 1] } })";
  files_["model.textproto"] = "inputs { name: \"y\" level: INPUT_LEVEL_AD row_shape: 2 }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ((*model)->info().not_optimised, "");
  Workspace workspace;
  RunResult result;
  const CaseInputs flat(
      {{"x", {"float32", {2, 2}, {1, 2, 3, 4}}}, {"y", {"float32", {2, 2}, {0, 0, 100, 100}}}});
  for (const bool reference : {false, true, false}) {
    const RunOptions options{.reference = reference};
    ASSERT_TRUE((*model)->Run(flat.tensors(), options, workspace, result).ok());
    EXPECT_EQ(result.stats.optimised, !reference);
    EXPECT_FLOAT_EQ(result.outputs[0].f32()[3], 123.f);  // 3 * 2 + 4 * 4 + 1 + 100
  }
  // Every tensor is there only in the graph as written.
  ASSERT_TRUE((*model)->Run(flat.tensors(), {.keep_all = true}, workspace, result).ok());
  EXPECT_FALSE(result.stats.optimised);
  // Legal by numpy's rules, but not what the graph made one expect.
  const CaseInputs deep(
      {{"x", {"float32", {1, 2, 2}, {1, 2, 3, 4}}}, {"y", {"float32", {1, 1}, {100}}}});
  ASSERT_TRUE((*model)->Run(deep.tensors(), {}, workspace, result).ok());
  EXPECT_FALSE(result.stats.optimised);
  EXPECT_EQ(ToString(result.outputs[0].dims), "[1, 2, 2]");
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[3], 123.f);
}

TEST_F(ModelTest, ANumberPerRowIsAColumn) {
  case_.graph = R"(
    layer_params { type: "input_layer" top: "x" }
    layer_params { name: "sum" type: "add_layer" bottom: "x" bottom: "x" top: "score" })";
  case_.weights_text = "";
  files_["model.textproto"] = "inputs { name: \"x\" level: INPUT_LEVEL_AD row_shape: 1 }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const CaseInputs inputs({{"x", {"float32", {3}, {1, 2, 4}}}});
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {}, workspace, result).ok());
  EXPECT_FALSE(result.stats.unproved);
  EXPECT_EQ(ToString(result.outputs[0].dims), "[3, 1]");
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[2], 8);
}

TEST_F(ModelTest, BatchOfUsersComputesUsersTogetherAndAdsInTilesAcrossUsers) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const CaseInputs inputs({{"u.ids", {"int64", {4}, {1, 2, 1, 2}}},
                           {"u.segments", {"int32", {3}, {2, 1, 1}}},
                           {"a.ids", {"int64", {4}, {1, -3, 1, 2}}}});
  const int64_t ads[] = {2, 0, 2};
  ASSERT_TRUE(
      (*model)
          ->Run(inputs.tensors(), {.count_layers = true, .ads_per_user = ads}, workspace, result)
          .ok());
  EXPECT_EQ(ToString(result.outputs[0].dims), "[4, 1]");
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[0], 191.5f);  // As for the first user alone.
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[1], 488.5f);
  // u = [10, 20]; tower = [70, 101]; score = 171 + a + 0.5.
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[2], 174.5f);
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[3], 201.5f);
  EXPECT_EQ(result.stats.layers[3].runs, 1);  // tower: the three users at once
  EXPECT_EQ(result.stats.layers[3].rows, 3);
  EXPECT_FALSE(result.stats.unproved);
}

TEST_F(ModelTest, BatchOfUsersIsChecked) {
  files_["model.textproto"] = "outputs: \"score\" outputs: \"tower\"";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const auto error = [&](std::vector<int64_t> ads, std::vector<double> user_segments,
                         std::vector<double> ad_segments, bool keep_all = false) {
    std::map<std::string, ulfd::testing::CaseArray> arrays = Request();
    const auto segments = [](const std::vector<double>& counts) {
      return ulfd::testing::CaseArray{"int32", {static_cast<int64_t>(counts.size())}, counts};
    };
    if (!user_segments.empty()) arrays["u.segments"] = segments(user_segments);
    if (!ad_segments.empty()) arrays["a.segments"] = segments(ad_segments);
    const CaseInputs inputs(arrays);
    const absl::Status status = (*model)->Run(
        inputs.tensors(), {.keep_all = keep_all, .ads_per_user = ads}, workspace, result);
    return status.ToString();
  };
  const std::string rank = "INVALID_ARGUMENT: model \"rank\" v1: ";
  EXPECT_EQ(error({2, -1}, {1, 1}, {}), rank + "ads_per_user[1] is -1, want 0 to 2147483647");
  // Rows that are not those of two users and their ads.
  const std::string not_together =
      "UNIMPLEMENTED: model \"rank\" v1: no plan computes several users of these shapes together";
  EXPECT_EQ(error({2, 1}, {2}, {}), not_together);
  EXPECT_EQ(error({2, 2}, {1, 1}, {}), not_together);
  EXPECT_EQ(error({1, 1, 1}, {}, {}),
            rank +
                "input \"u.segments\" is missing, and \"u.ids\" has 2 ids, not one for each of "
                "3 users");
  EXPECT_EQ(error({2, 1}, {1, 1}, {}, true), rank + "keep_all takes a request of one user");
  // No ads at all.
  const CaseInputs none({{"u.ids", {"int64", {2}, {1, 2}}}, {"a.ids", {"int64", {0}, {}}}});
  const int64_t ads[] = {0, 0};
  ASSERT_TRUE((*model)->Run(none.tensors(), {.ads_per_user = ads}, workspace, result).ok());
  EXPECT_EQ(ToString(result.outputs[0].dims), "[0, 1]");
  EXPECT_EQ(ToString(result.outputs[1].dims), "[2, 2]");
  EXPECT_FLOAT_EQ(result.outputs[1].f32()[3], 101);
}

TEST_F(ModelTest, SeveralUsersAreRefusedWhereNoProofHolds) {
  // The sum over the ads makes every row depend on all.
  case_.graph = Graph() +
                "layer_params { name: \"all\" type: \"sum_layer\" bottom: \"score\" top: \"all\" "
                "sum_param { dim: 0 } }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().proof_failure, HasSubstr("layer 6 \"all\" (sum_layer): \"all\""));
  const CaseInputs inputs(
      {{"u.ids", {"int64", {2}, {1, 2}}}, {"a.ids", {"int64", {3}, {1, -3, 2}}}});
  const int64_t ads[] = {2, 1};
  Workspace workspace;
  RunResult result;
  EXPECT_FALSE((*model)->joins_users());
  const absl::Status status =
      (*model)->Run(inputs.tensors(), {.ads_per_user = ads}, workspace, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "model \"rank\" v1: no plan computes several users of these shapes together");
}

TEST_F(ModelTest, NonFiniteOutputsAreReturnedOrRefused) {
  case_.tables = {{"t", "1,1,2\n2,10,20\n-3,3e38,3e38\n"}};
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const CaseInputs inputs(Request());
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {}, workspace, result).ok());
  EXPECT_TRUE(std::isinf(result.outputs[0].f32()[1]));
  files_["model.textproto"] = "non_finite: NON_FINITE_POLICY_REFUSE";
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status = (*model)->Run(inputs.tensors(), {}, workspace, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "model \"rank\" v1: output \"score\": row 1 has inf, and the manifest's non_finite is "
            "REFUSE");
  // Nobody made that request, so that it says nothing of the model.
  EXPECT_TRUE((*model)->Run(inputs.tensors(), {.made_up = true}, workspace, result).ok());
}

TEST_F(ModelTest, MemoryLimitNamesTheParts) {
  files_["model.textproto"] = "memory_limit_bytes: 100";
  auto model = Load();
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(LoadReasonOf(model.status()), LoadReason::kMemory);
  EXPECT_THAT(std::string(model.status().message()),
              ::testing::MatchesRegex(
                  "model \"rank\" v1: manifest: memory_limit_bytes is 100, and the model takes "
                  "[0-9]+: weights [0-9]+ \\+ tables [0-9]+ \\+ copies laid out for speed [0-9]+ "
                  "\\+ constants that the optimiser computed [0-9]+ \\+ user_cache_bytes 0 "
                  "\\+ ad_cache_bytes 0 \\+ a worker's memory for one "
                  "user and a tile of ads [0-9]+"));
  files_["model.textproto"] = "memory_limit_bytes: 100000000";
  model = Load();
  EXPECT_TRUE(model.ok()) << model.status();
}

TEST_F(ModelTest, FeaturesHaveNamesAsMatrices) {
  auto model = LoadBesideNumbers("features { name: \"a\" matrix: \"items\" padding_id: 0 }");
  ASSERT_TRUE(model.ok()) << model.status();
  const int items = (*model)->FindMatrix("items");
  ASSERT_GE(items, 0);
  const FeatureInfo& a = (*model)->info().features[(*model)->FindFeature("a")];
  EXPECT_EQ((*model)->info().matrices[items].parts.at(0).feature, (*model)->FindFeature("a"));
  EXPECT_EQ(a.padding_id, 0);
  EXPECT_GE((*model)->FindMatrix("u"), 0) << "by default its own name";
  EXPECT_EQ((*model)->FindMatrix("a"), -1);
  model = LoadBesideNumbers("features { name: \"b\" }");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("manifest: features names \"b\", which is no sparse feature"));
  model = LoadBesideNumbers("features { name: \"a\" matrix: \"x\" }");
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("manifest: features \"a\": matrix \"x\" is the name of an input, or of"));
  model = LoadBesideNumbers("features { name: \"a\" matrix: \"u\" }");
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("or of another feature"));
  model = LoadBesideNumbers("features { name: \"a\" matrix: \"i\\n\" }");
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("printable characters"));
}

TEST_F(ModelTest, MatricesHaveParts) {
  auto model = LoadBesideNumbers(R"(matrices { name: "all" columns: 4 parts { name: "a" columns: 3 }
                                  parts { name: "x" columns: 0 columns: 2 columns: 1 } })");
  ASSERT_TRUE(model.ok()) << model.status();
  const MatrixInfo& all = (*model)->info().matrices.at((*model)->FindMatrix("all"));
  EXPECT_EQ(all.columns, 4);
  EXPECT_EQ(all.parts.at(0).feature, (*model)->FindFeature("a"));
  EXPECT_EQ(all.parts.at(1).input, (*model)->FindInput("x"));
  EXPECT_THAT(all.parts.at(1).columns, ::testing::ElementsAre(0, 2, 1));
  model = LoadBesideNumbers(R"(matrices { name: "all" columns: 3 parts { name: "x" } })");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->info().matrices.at((*model)->FindMatrix("all")).parts.at(0).columns,
              ::testing::IsEmpty());
  for (const auto& [matrices, error] : std::vector<std::pair<std::string, std::string>>{
           {R"(matrices { name: "x" columns: 1 parts { name: "a" } })",
            "matrices \"x\" is the name of an input or of another matrix"},
           {R"(matrices { columns: 1 parts { name: "a" } })", "matrices \"\", want up to 1024"},
           {R"(matrices { name: "m" parts { name: "a" } })", "0 columns, want 1..1048576"},
           {R"(matrices { name: "m" columns: 1 })", "matrices \"m\": no parts"},
           {R"(matrices { name: "m" columns: 1 parts { name: "a.ids" } })",
            "part \"a.ids\" is no sparse feature and no dense input of the graph"},
           {R"(matrices { name: "m" columns: 1 parts { name: "a" } parts { name: "a" } })",
            "part \"a\" is there twice"},
           {R"(matrices { name: "m" columns: 2 parts { name: "a" columns: 2 } })",
            "part \"a\": column 2, want 0..1"},
           {R"(matrices { name: "m" columns: 2 parts { name: "x" } })",
            "part \"x\": 2 columns, want the 3 values that a row of it has"},
           {R"(matrices { name: "m" columns: 2 parts { name: "x" columns: 1 } })",
            "part \"x\": 1 columns, want the 3 values that a row of it has"}}) {
    model = LoadBesideNumbers(matrices);
    EXPECT_TRUE(absl::IsInvalidArgument(model.status())) << matrices;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("manifest: ")) << matrices;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(error)) << matrices;
  }
}

TEST_F(ModelTest, AManifestLevelThatTheGraphContradictsIsAnError) {
  case_.graph =
      Graph() +
      "layer_params { type: \"input_layer\" top: \"x\" }"
      "layer_params { name: \"beside\" type: \"concat_layer\" bottom: \"a\" bottom: \"x\" "
      "top: \"beside\" }";
  files_["model.textproto"] = "inputs { name: \"x\" level: INPUT_LEVEL_USER row_shape: 3 }";
  auto model = Load();
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("manifest: inputs \"x\" has level INPUT_LEVEL_USER, which the graph "
                        "contradicts; with 1 user and 7 ads: layer 7 \"beside\" (concat_layer): "
                        "input 1: shape [1, 3]"));
  files_["model.textproto"] = "inputs { name: \"x\" level: INPUT_LEVEL_AD row_shape: 3 }";
  model = Load();
  EXPECT_TRUE(model.ok()) << model.status();
  // The other way round: fuse takes one row only.
  case_.graph = Graph() +
                "layer_params { type: \"input_layer\" top: \"x\" }"
                "layer_params { name: \"beside\" type: \"fuse_layer\" bottom: \"x\" bottom: \"a\" "
                "top: \"beside\" }";
  model = Load();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("manifest: inputs \"x\" has level INPUT_LEVEL_AD, which the graph "
                        "contradicts; with 1 user and 7 ads: layer 7 \"beside\" (fuse_layer): "));
}

// x has what is left of the columns that the layer behind concat and fuse takes.
constexpr char kDenseBehindConcat[] = R"(
layer_params { type: "input_layer" top: "u.ids" top: "u.values" top: "u.segments"
               top: "a.ids" top: "a.values" top: "a.segments" top: "x" top: "c" }
layer_params { name: "user" type: "embedding_layer" bottom: "u.ids" bottom: "u.values" bottom: "u.segments"
               top: "u" embedding_param { embedding_conf_path: "user.conf" level: 1 } }
layer_params { name: "ad" type: "embedding_layer" bottom: "a.ids" bottom: "a.values" bottom: "a.segments"
               top: "a" embedding_param { embedding_conf_path: "ad.conf" level: 0 } }
layer_params { name: "context" type: "concat_layer" bottom: "u" bottom: "c" top: "uc" }
layer_params { name: "tower" type: "inner_product_layer" bottom: "uc" top: "tower" }
layer_params { name: "squash" type: "tanh_layer" bottom: "x" top: "tx" }
layer_params { name: "beside" type: "concat_layer" bottom: "tx" bottom: "a" top: "ax" }
layer_params { name: "fuse" type: "fuse_layer" bottom: "tower" bottom: "ax" top: "fused" }
layer_params { name: "fc" type: "inner_product_layer" bottom: "fused" top: "score" }
)";

TEST_F(ModelTest, WidthsOfUndescribedInputsFollowFromWeightsBehindThem) {
  case_.graph = kDenseBehindConcat;
  case_.weights_text = R"(
layer_weights_params { name: "tower" blob_datas { shape: 3 shape: 2 data: [1, 2, 3, 4, 5, 6] }
                       blob_datas { shape: 2 data: [0, 1] } }
layer_weights_params { name: "fc" blob_datas { shape: 7 shape: 1 data: [1, 1, 1, 1, 1, 1, 1] }
                       blob_datas { shape: 1 data: [0.5] } }
)";
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.inputs[(*model)->FindInput("c")].shape.ToString(), "[users, 1]");
  EXPECT_EQ(info.inputs[(*model)->FindInput("x")].shape.ToString(), "[ads, 3]");
  EXPECT_EQ(info.not_optimised, "");
  auto request = Request();
  request["c"] = {"float32", {1, 1}, {1}};
  request["x"] = {"float32", {3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0}};
  const CaseInputs inputs(request);
  Workspace workspace;
  RunResult optimised, written;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {}, workspace, optimised).ok());
  EXPECT_TRUE(optimised.stats.optimised);
  Workspace other;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {.reference = true}, other, written).ok());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_FLOAT_EQ(optimised.outputs[0].f32()[i], written.outputs[0].f32()[i]);
  }
  // Two inputs share what is left: no width follows, and the graph is executed as it is written.
  case_.graph.replace(case_.graph.find("bottom: \"tx\" bottom: \"a\""), 24,
                      "bottom: \"tx\" bottom: \"y\"");
  case_.graph.replace(case_.graph.find("top: \"x\" top: \"c\""), 17,
                      "top: \"x\" top: \"c\" top: \"y\"");
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NE((*model)->info().not_optimised, "");
}

TEST_F(ModelTest, EmptyBatchGivesEmptyOutput) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  auto request = Request();
  request["a.ids"] = {"int64", {0}, {}};
  const CaseInputs inputs(request);
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {}, workspace, result).ok());
  EXPECT_EQ(ToString(result.outputs[0].dims), "[0, 1]");
}

TEST_F(ModelTest, StopEndsTheRunBetweenTiles) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const CaseInputs inputs(Request());
  Workspace workspace;
  RunResult result;
  int polls = 0;
  const std::function<bool()> stop = [&] { return ++polls > 6; };
  const absl::Status status = (*model)->Run(
      inputs.tensors(), {.count_layers = true, .tile_rows = 1, .stop = &stop}, workspace, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_LT(result.stats.layers[5].rows, 3);
}

TEST_F(ModelTest, RefusesBadInputsByName) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const auto error = [&](std::map<std::string, ulfd::testing::CaseArray> request) {
    const CaseInputs inputs(request);
    const absl::Status status = (*model)->Run(inputs.tensors(), {}, workspace, result);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  auto request = Request();
  request.erase("a.ids");
  EXPECT_EQ(error(request), "model \"rank\" v1: input \"a.ids\" is missing");
  request = Request();
  request["b.ids"] = {"int64", {1}, {1}};
  EXPECT_EQ(error(request), "model \"rank\" v1: input \"b.ids\" is not an input of the graph");
  request = Request();
  request["a.ids"].dtype = "float32";
  EXPECT_EQ(error(request), "model \"rank\" v1: input \"a.ids\" is float32, want int64");
  request = Request();
  request["a.values"] = {"float32", {2}, {1, 1}};
  EXPECT_EQ(error(request),
            "model \"rank\" v1: input \"a.values\": 2 values, want 3, one per id of \"a.ids\"");
  request = Request();
  request["a.segments"] = {"int32", {2}, {1, 1}};
  EXPECT_EQ(error(request),
            "model \"rank\" v1: input \"a.segments\": rows add up to 2 ids, want 3, the length of "
            "\"a.ids\"");
  request = Request();
  request["a.segments"] = {"int32", {2}, {4, -1}};
  EXPECT_EQ(error(request),
            "model \"rank\" v1: input \"a.segments\": row 1 has -1 ids, want 0 or more");
}

TEST_F(ModelTest, RefusesBadGraphsByLayer) {
  EXPECT_EQ(LoadError("bottom: \"tower\" bottom: \"a\"", "bottom: \"score\" bottom: \"a\""),
            "model \"rank\" v1: layer 4 \"fuse\" (fuse_layer): reads \"score\", which only layer 5 "
            "\"fc\" (inner_product_layer) makes; a layer reads what stands before it");
  case_.graph = Graph();
  EXPECT_EQ(LoadError("bottom: \"tower\" bottom: \"a\"", "bottom: \"towel\" bottom: \"a\""),
            "model \"rank\" v1: layer 4 \"fuse\" (fuse_layer): reads \"towel\", which no layer "
            "makes and no input declares");
  case_.graph = Graph();
  EXPECT_THAT(
      LoadError("\"fc\" type: \"inner_product_layer\"", "\"fc\" type: \"inner_produkt_layer\""),
      HasSubstr("layer 5 \"fc\" (inner_produkt_layer): "));
  case_.graph = Graph();
  case_.weights_text = kWeights;
  const std::string four = "shape: 4 shape: 1 data: [1, 1, 1, 1]";
  case_.weights_text.replace(case_.weights_text.find(four), four.size(),
                             "shape: 2 shape: 1 data: [1, 1]");
  const auto model = Load();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("model \"rank\" v1: layer 5 \"fc\" (inner_product_layer): "));
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("\"fused\" [ads, 4]"));
}

TEST_F(ModelTest, ManifestChoosesOutputsAndIsChecked) {
  files_["model.textproto"] = "outputs: \"fused\" outputs: \"tower\"";
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().outputs[0].name, "fused");
  EXPECT_EQ((*model)->info().outputs[1].shape.ToString(), "[users, 2]");
  const CaseInputs inputs(Request());
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {.tile_rows = 1}, workspace, result).ok());
  EXPECT_EQ(ToString(result.outputs[0].dims), "[3, 4]");
  EXPECT_EQ(ToString(result.outputs[1].dims), "[1, 2]");
  EXPECT_FLOAT_EQ(result.outputs[1].f32()[1], 111);

  const std::map<std::string, std::string> errors = {
      {"outputs: \"nothing\"", "manifest: outputs names \"nothing\", which no layer makes"},
      {"inputs { name: \"x\" }", "manifest: inputs names \"x\", which is no input of the graph"},
      {"tables { name: \"s\" }", "manifest: tables names \"s\", which no embedding layer reads"},
      {"inputs { name: \"a.ids\" level: INPUT_LEVEL_USER }",
       "whose level embedding_param.level of"},
      {"sums { path: \"t\" sha256: \"" + std::string(64, '0') + "\" }", "the manifest says 000"}};
  for (const auto& [manifest, text] : errors) {
    files_["model.textproto"] = manifest;
    model = Load();
    EXPECT_FALSE(model.ok()) << manifest;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr(text));
  }
}

TEST_F(ModelTest, ChecksRequestsForIntegersThatAreLimited) {
  case_.graph = R"(
    layer_params { type: "input_layer" top: "x" top: "y" }
    layer_params { name: "sum" type: "add_layer" bottom: "x" bottom: "y" top: "score" })";
  case_.weights_text.clear();
  files_["model.textproto"] =
      "inputs { name: \"x\" level: INPUT_LEVEL_AD row_shape: 1 integers_below: 5000 }"
      "inputs { name: \"y\" level: INPUT_LEVEL_AD row_shape: 1 }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const auto run = [&](double x) {
    const CaseInputs inputs(
        {{"x", {"float32", {2, 1}, {0, x}}}, {"y", {"float32", {2, 1}, {0.5, 0.5}}}});
    return (*model)->Run(inputs.tensors(), {}, workspace, result).ToString();
  };
  EXPECT_EQ(run(-4999), "OK");
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[1], -4998.5f);
  for (const double refused : {5000.0, -5000.0, 0.5, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(run(refused), HasSubstr(absl::StrCat("input \"x\": element 1 is ", refused,
                                                     ", want a whole number of a magnitude below "
                                                     "5000")));
  }

  case_.graph = R"(
    layer_params { type: "input_layer" top: "x" top: "mask" }
    layer_params { name: "score" type: "relu_layer" bottom: "x" top: "score" })";
  files_["model.textproto"] = "inputs { name: \"mask\" integers_below: 9 }";
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("manifest: inputs \"mask\": integers_below is set, but by its name the "
                        "input is int32, want one of another name"));
}

TEST_F(ModelTest, ComputesWithIntegersOf64Bits) {
  case_.graph = R"(
    layer_params { type: "input_layer" top: "seen" top: "now" }
    layer_params { name: "score" type: "expression_layer" bottom: "seen" bottom: "now" top: "score"
                   expression_param { expression: "@1 - @0" } })";
  case_.weights_text.clear();
  const std::string now =
      " inputs { name: \"now\" level: INPUT_LEVEL_USER row_shape: 1 int64: true }";
  files_["model.textproto"] =
      "inputs { name: \"seen\" level: INPUT_LEVEL_AD row_shape: 1 int64: true "
      "integers_below: 9007199254740992 }" +
      now;
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->info().inputs[0].dtype, DType::kInt64);
  Workspace workspace;
  RunResult result;
  const auto run = [&](const char* type, double seen) {
    const CaseInputs inputs({{"seen", {type, {2, 1}, {1'699'999'999, seen}}},
                             {"now", {"int64", {1, 1}, {1'700'000'001}}}});
    return (*model)->Run(inputs.tensors(), {}, workspace, result).ToString();
  };
  EXPECT_EQ(run("int64", 1'600'000'000), "OK");
  EXPECT_EQ(result.outputs[0].f32()[0], 2);
  EXPECT_EQ(result.outputs[0].f32()[1], 100'000'001.0f);
  EXPECT_THAT(run("int64", 0x1p53), HasSubstr("input \"seen\": element 1 is 9007199254740992, want "
                                              "a whole number of a magnitude below"));
  EXPECT_THAT(run("float32", 1), HasSubstr("input \"seen\" is float32, want int64"));

  files_["model.textproto"] =
      "inputs { name: \"seen\" level: INPUT_LEVEL_AD row_shape: 1 int64: true }" + now;
  case_.graph = R"(
    layer_params { type: "input_layer" top: "seen" top: "now" }
    layer_params { name: "score" type: "relu_layer" bottom: "seen" top: "score" })";
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("layer 1 \"score\" (relu_layer): input 0: int64, want float32"));
}

TEST_F(ModelTest, ChecksHowManyIdsARowHas) {
  files_["model.textproto"] =
      "features { name: \"u\" max_ids_per_row: 2 } features { name: \"a\" max_ids_per_row: 1 }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const auto run = [&](std::map<std::string, ulfd::testing::CaseArray> request) {
    const CaseInputs inputs(std::move(request));
    const absl::Status status = (*model)->Run(inputs.tensors(), {}, workspace, result);
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  auto request = Request();
  EXPECT_EQ(run(request), "");
  request["a.segments"] = {"int32", {3}, {1, 1, 1}};
  EXPECT_EQ(run(request), "");
  request["a.segments"] = {"int32", {3}, {1, 0, 2}};
  EXPECT_EQ(run(request), "model \"rank\" v1: feature \"a\": row 2 has 2 ids, want up to 1");
  request = Request();
  request["u.ids"] = {"int64", {3}, {1, 2, 1}};
  EXPECT_EQ(run(request), "model \"rank\" v1: feature \"u\": row 0 has 3 ids, want up to 2");
  request["u.segments"] = {"int32", {1}, {3}};
  EXPECT_EQ(run(request), "model \"rank\" v1: feature \"u\": row 0 has 3 ids, want up to 2");
}

TEST_F(ModelTest, MissingKeyPolicies) {
  files_["model.textproto"] =
      "tables { name: \"t\" missing_keys: MISSING_KEY_POLICY_DEFAULT_ROW default_id: 2 }";
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const CaseInputs inputs(Request());
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->Run(inputs.tensors(), {}, workspace, result).ok());
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[2], 218.5f);  // 188.5 + 10 + 20
  EXPECT_EQ(result.stats.missing_ids, std::vector<int64_t>{1});

  files_["model.textproto"] = "tables { name: \"t\" missing_keys: MISSING_KEY_POLICY_ERROR }";
  model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status = (*model)->Run(inputs.tensors(), {}, workspace, result);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("77"));
}

TEST_F(ModelTest, WorkspaceServesSeveralModelsAndStaysBounded) {
  const auto first = Load();
  ASSERT_TRUE(first.ok()) << first.status();
  Workspace workspace;
  RunResult result;
  const CaseInputs inputs(Request());
  for (int i = 0; i < 100; ++i) {
    const auto other = Load();  // Freed at the end of the loop: a new one may get its address.
    ASSERT_TRUE(other.ok()) << other.status();
    for (const Model* model : {first->get(), other->get()}) {
      ASSERT_TRUE(model->Run(inputs.tensors(), {}, workspace, result).ok());
      EXPECT_FLOAT_EQ(result.outputs[0].f32()[0], 191.5f);
    }
  }
  EXPECT_LT(workspace.bytes(), 1 << 20);
  EXPECT_FALSE(workspace.Shrink());  // As little as that is kept.
  EXPECT_GT(workspace.bytes(), 0);
  ASSERT_TRUE((*first)->Run(inputs.tensors(), {}, workspace, result).ok());
  EXPECT_FLOAT_EQ(result.outputs[0].f32()[0], 191.5f);
}

TEST_F(ModelTest, WarmupRuns) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE((*model)->RunWarmup(5, {}, workspace, result).ok());
  EXPECT_EQ(ToString(result.outputs[0].dims), "[5, 1]");
}

TEST_F(ModelTest, WarmupAsksNoStrictTableForMadeUpIds) {
  files_["model.textproto"] = "tables { name: \"t\" missing_keys: MISSING_KEY_POLICY_ERROR }";
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  Workspace workspace;
  RunResult result;
  const absl::Status status = (*model)->RunWarmup(5, {}, workspace, result);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ToString(result.outputs[0].dims), "[5, 1]");
}

}  // namespace
}  // namespace ulfd::engine
