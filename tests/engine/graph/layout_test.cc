// Models of layout NHWC: that they compute what their NCHW twins do is a case of graph_cases_test
// (tests/data/graphs/images.json); here, what is left of the transpositions, and errors.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/runtime/model_loader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ulfd::testing::GraphCase;

class LayoutTest : public ulfd::testing::ModelDirectories {
 protected:
  static GraphCase Case(const std::string& name) {
    for (GraphCase& graph_case :
         ulfd::testing::ReadGraphCases(::ulfd::testing::TestData() + "/graphs/images.json")) {
      if (graph_case.name != name) continue;
      graph_case.manifest += ulfd::testing::InputManifest(graph_case);
      return graph_case;
    }
    ADD_FAILURE() << "no case " << name;
    return {};
  }
  absl::StatusOr<std::unique_ptr<LoadedModel>> Load(const GraphCase& graph_case) {
    return LoadModel({.directory = ulfd::testing::WriteModelDirectory(graph_case, base_)});
  }
  static int Transpositions(const Plan& plan) {
    return static_cast<int>(std::count_if(
        plan.graph.nodes.begin(), plan.graph.nodes.end(),
        [](const Node& node) { return node.layer->semantics().op == Semantics::Op::kTranspose; }));
  }
  // One convolution over NHWC images.
  static GraphCase Convolution(const std::string& shape, const std::string& data) {
    return {.name = "convolution",
            .graph = R"(layer_params { type: "input_layer" top: "image" }
layer_params { name: "conv" type: "convolution_layer" bottom: "image" top: "y"
               convolution_param { bias_term: false } })",
            .weights_text = absl::StrCat("layer_weights_params { name: \"conv\" blob_datas { ",
                                         shape, " ", data, " } }"),
            .manifest = "layout: LAYOUT_NHWC\n"};
  }
};

TEST_F(LayoutTest, OnlyTheBordersAreTransposed) {
  // conv, pooling, conv, Upsample, concat and ShuffleChannel; Reverse, behind them, is none of the
  // layers over images: the image comes in, and the result goes to Reverse.
  auto model = Load(Case("pyramid_nhwc_3"));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_NE((*model)->executable.optimised, nullptr) << (*model)->info.not_optimised;
  EXPECT_EQ(Transpositions(*(*model)->executable.plan), 10);
  EXPECT_EQ(Transpositions(*(*model)->executable.optimised), 2);

  // conv, relu, pooling, Reorg, conv, Yolo: the image, and Yolo's three outputs.
  model = Load(Case("yolo_nhwc_3"));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_NE((*model)->executable.optimised, nullptr) << (*model)->info.not_optimised;
  EXPECT_EQ(Transpositions(*(*model)->executable.optimised), 4);
}

TEST_F(LayoutTest, ShapesAreThoseOfTheLayout) {
  auto model = Load(Case("pyramid_nhwc_3"));
  ASSERT_TRUE(model.ok()) << model.status();
  const ModelInfo& info = (*model)->info;
  ASSERT_EQ(info.inputs.size(), 1);
  EXPECT_EQ(info.inputs[0].shape.ToString(), "[ads, 6, 4, 2]");
  for (const LayerInfo& layer : info.layers) {
    if (layer.type != "ShuffleChannel") continue;
    ASSERT_EQ(layer.top_shapes.size(), 1);
    EXPECT_EQ(layer.top_shapes[0].ToString(), "[ads, 6, 4, 6]");
  }
}

TEST_F(LayoutTest, KernelOfAnotherRank) {
  const auto model = Load(Convolution("shape: 2 shape: 3", "data: [1, 2, 3, 4, 5, 6]"));
  EXPECT_THAT(
      std::string(model.status().message()),
      AllOf(HasSubstr("layer 1 \"conv\" (convolution_layer)"), HasSubstr("shape [2, 3]"),
            HasSubstr("want [kernel_h, kernel_w, channels / group, num_output] (layout NHWC)")));
}

TEST_F(LayoutTest, InputThatIsNoImage) {
  GraphCase graph_case =
      Convolution("shape: 1 shape: 1 shape: 2 shape: 3", "data: [1, 2, 3, 4, 5, 6]");
  graph_case.manifest += "inputs { name: \"image\" level: INPUT_LEVEL_AD row_shape: 5 }\n";
  const auto model = Load(graph_case);
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("conv"), HasSubstr("[ads, 5]"),
                    HasSubstr("want [rows, height, width, channels] (layout NHWC)")));
}

TEST_F(LayoutTest, ChannelsThatDoNotFit) {
  GraphCase graph_case =
      Convolution("shape: 1 shape: 1 shape: 2 shape: 3", "data: [1, 2, 3, 4, 5, 6]");
  graph_case.manifest += "inputs { name: \"image\" level: INPUT_LEVEL_AD row_shape: [8, 8, 3] }\n";
  const auto model = Load(graph_case);
  EXPECT_THAT(std::string(model.status().message()),
              AllOf(HasSubstr("[ads, 3, 8, 8]"), HasSubstr("NHWC -> NCHW")));
}

}  // namespace
}  // namespace ulfd::engine
