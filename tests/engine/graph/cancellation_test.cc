// Which layers are named as losing digits, and which are not.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// in -> fc1 -> bn1 -> act -> fc2 -> bn2
constexpr char kGraph[] = R"(
layer_params { type: "input_layer" top: "x" }
layer_params { name: "fc1" type: "inner_product_layer" bottom: "x" top: "fc1" }
layer_params { name: "bn1" type: "bn_layer" bottom: "fc1" top: "bn1" bn_param { eps: 0 } }
layer_params { name: "act" type: "relu_layer" bottom: "bn1" top: "act" }
layer_params { name: "fc2" type: "inner_product_layer" bottom: "act" top: "fc2" }
layer_params { name: "bn2" type: "bn_layer" bottom: "fc2" top: "bn2" bn_param { eps: 0 } }
)";

std::string Fc(const std::string& name, double weight, double bias) {
  return absl::StrCat("layer_weights_params { name: \"", name,
                      "\" blob_datas { shape: 1 shape: 1 data: ", weight,
                      " } blob_datas { shape: 1 data: ", bias, " } }\n");
}
std::string Bn(const std::string& name, double beta, double gamma, double mean, double var) {
  std::string text = absl::StrCat("layer_weights_params { name: \"", name, "\"");
  for (double value : {beta, gamma, mean, var}) {
    absl::StrAppend(&text, " blob_datas { shape: 1 data: ", value, " }");
  }
  return text + " }\n";
}

class CancellationTest : public ::testing::Test {
 protected:
  CancellationTest() { UseOneThread(); }
  std::vector<Cancellation> Find(const std::string& weights, const std::string& manifest = "") {
    std::filesystem::create_directories(temp_.File("m/1"));
    temp_.Write("m/1/graph_ulf.txt", kGraph);
    temp_.Write("m/1/weights.pb", weights);
    temp_.Write("m/1/model.textproto", manifest);
    auto model = Model::Load({.directory = temp_.File("m/1")});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    model_ = *std::move(model);
    return model_->Cancellations(nullptr);
  }
  TempDir temp_;
  std::unique_ptr<const Model> model_;
};

TEST_F(CancellationTest, IsSilentAboutHealthyModels) {
  EXPECT_THAT(
      Find(Fc("fc1", 1, 0) + Bn("bn1", 0, 1, 3, 1) + Fc("fc2", 1, 1) + Bn("bn2", 0.5, 1, 100, 1)),
      IsEmpty());
}

TEST_F(CancellationTest, StopsAtAnFcWhoseBiasIsTheMean) {
  // The mean of 1e5 is the bias of fc2: its input is small and its rounding harmless.
  const auto found =
      Find(Fc("fc1", 1, 0) + Bn("bn1", 0, 1, 0, 1) + Fc("fc2", 1, 1e5) + Bn("bn2", 0, 1, 1e5, 1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].label, "layer 5 \"bn2\" (bn_layer)");
  EXPECT_EQ(found[0].layer, 5);
  EXPECT_NEAR(found[0].ratio, 1e5, 1);
  EXPECT_NEAR(found[0].error, 1e5 / 3 * 0x1p-24, 1e-6);
  EXPECT_THAT(found[0].double_layers, ElementsAre("fc2", "bn2"));
  EXPECT_THAT(found[0].obstacles, IsEmpty());
}

TEST_F(CancellationTest, FollowsLargeInputsBackwards) {
  // fc2's output of 1e5 comes from an input of 100, which bn1 makes as its beta.
  const auto found = Find(Fc("fc1", 1, 0) + Bn("bn1", 100, 1e-4, 0, 1) + Fc("fc2", 1000, 0) +
                          Bn("bn2", 0, 1, 1e5, 1));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].double_layers, ElementsAre("bn1", "act", "fc2", "bn2"));
}

TEST_F(CancellationTest, IsSilentOnceTheLayersAreComputedInDouble) {
  EXPECT_THAT(
      Find(Fc("fc1", 1, 0) + Bn("bn1", 0, 1, 0, 1) + Fc("fc2", 1, 1e5) + Bn("bn2", 0, 1, 1e5, 1),
           "double_layers: ['fc2', 'bn2']"),
      IsEmpty());
}

TEST_F(CancellationTest, TakesObservedMagnitudesInstead) {
  // The weights look harmless, but this input is 1e5 times what the model was trained on.
  const std::string weights =
      Fc("fc1", 1, 0) + Bn("bn1", 0, 1, 0, 1) + Fc("fc2", 1, 0) + Bn("bn2", 0, 1, 1, 1);
  EXPECT_THAT(Find(weights), IsEmpty());
  const ulfd::testing::CaseInputs inputs({{"x", {"float32", {2, 1}, {1e5, 2e5}}}});
  Workspace workspace;
  RunResult result;
  ASSERT_TRUE(model_->Run(inputs.tensors(), {.keep_all = true}, workspace, result).ok());
  const auto found = model_->Cancellations(&result);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NEAR(found[0].error, 1.5e5 / 3 * 0x1p-24, 1e-4);
  EXPECT_EQ(found[0].double_layers.front(), "fc1");
}

TEST_F(CancellationTest, NamesTheLayersOfTdmDnn) {
  const std::string directory = ::ulfd::testing::SharedDir() + "/models/tdm_dnn/1";
  if (!std::filesystem::exists(directory)) GTEST_SKIP() << directory << " is not there";
  const auto model = Model::Load({.directory = directory});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto found = (*model)->Cancellations(nullptr);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].label, "layer 49 \"bn_2_d\" (bn_layer)");
  EXPECT_THAT(found[0].double_layers,
              ElementsAre("fc_1_d", "bn_1_d", "prelu_1_d", "fc_2_d", "bn_2_d"));
}

}  // namespace
}  // namespace ulfd::engine
