// Every row of the document of the extension operators (beside the checkout): its prototxt samples
// load as they stand and run; operators without a sample run from their definition.  Values are
// checked by tests/data/layers.
// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/layers/common/expression.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ulfd::testing::CaseArray;

// The `layer { ... }` blocks of that type.
std::vector<std::string> Samples(const std::string& document, const std::string& type) {
  std::vector<std::string> samples;
  for (size_t at = document.find("\nlayer"); at != std::string::npos;
       at = document.find("\nlayer", at + 1)) {
    const size_t open = document.find('{', at);
    int depth = 1;
    size_t end = open + 1;
    for (; depth > 0 && end < document.size(); ++end) {
      depth += document[end] == '{' ? 1 : document[end] == '}' ? -1 : 0;
    }
    std::string sample = document.substr(at, end - at);
    const bool named = absl::StrContains(sample, absl::StrCat("type: \"", type, "\"")) ||
                       absl::StrContains(sample, absl::StrCat("type:\"", type, "\""));
    // The one slip of the printed samples: a quotation mark too many.
    if (named)
      samples.push_back(absl::StrReplaceAll(sample, {{"\"\"some_input\"", "\"some_input\""}}));
  }
  return samples;
}

std::vector<std::string> Bottoms(const std::string& sample) {
  std::vector<std::string> bottoms;
  for (size_t at = sample.find("bottom:"); at != std::string::npos;
       at = sample.find("bottom:", at + 1)) {
    const size_t begin = sample.find('"', at) + 1;
    std::string name = sample.substr(begin, sample.find('"', begin) - begin);
    if (bottoms.empty() || bottoms.back() != name) bottoms.push_back(std::move(name));
  }
  return bottoms;
}

CaseArray Ramp(const std::vector<int64_t>& shape) {
  CaseArray array{.dtype = "float32", .shape = shape, .values = {}};
  int64_t elements = 1;
  for (int64_t d : shape) elements *= d;
  for (int64_t i = 0; i < elements; ++i) array.values.push_back(static_cast<double>(i % 13) / 13);
  return array;
}

// Loads the sample as a whole graph and scores `rows` rows with inputs of these shapes (without the
// rows), in the order in which the sample names its bottoms.  The shapes of the outputs, by name.
std::string Score(const std::string& sample, const std::vector<std::vector<int64_t>>& shapes,
                  int64_t rows, const std::string& weights = "", const std::string& manifest = "") {
  UseOneThread();
  const std::vector<std::string> bottoms = Bottoms(sample);
  if (bottoms.size() != shapes.size()) return absl::StrCat(bottoms.size(), " bottoms");
  ulfd::testing::GraphCase graph_case;
  graph_case.name = "sample";
  graph_case.weights_text = weights;
  graph_case.manifest = manifest;
  std::string inputs;
  for (size_t i = 0; i < bottoms.size(); ++i) {
    absl::StrAppend(&inputs, "top: \"", bottoms[i], "\" ");
    std::vector<int64_t> shape = shapes[i];
    shape.insert(shape.begin(), rows);
    graph_case.inputs[bottoms[i]] = Ramp(shape);
  }
  graph_case.graph = absl::StrCat("layer { type: \"input_layer\" ", inputs, "}\n", sample);
  const TempDir base;
  const auto model =
      Model::Load({.directory = ulfd::testing::WriteModelDirectory(graph_case, base.path())});
  if (!model.ok()) return model.status().ToString();
  const ulfd::testing::CaseInputs tensors(graph_case.inputs);
  Workspace workspace;
  RunResult result;
  if (const absl::Status status = (*model)->Run(tensors.tensors(), {}, workspace, result);
      !status.ok()) {
    return status.ToString();
  }
  std::vector<std::string> found;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    found.push_back(absl::StrCat((*model)->info().outputs[i].name, " ",
                                 ToString(absl::MakeConstSpan(result.outputs[i].dims))));
  }
  return absl::StrJoin(found, ", ");
}

class Seed002 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (document_.empty()) GTEST_SKIP() << "the document is not there";
  }
  // The one sample of the type.
  std::string Sample(const std::string& type) {
    const std::vector<std::string> samples = Samples(document_, type);
    EXPECT_EQ(samples.size(), 1u) << type;
    return samples.empty() ? "" : samples[0];
  }
  const std::string document_ = ::ulfd::testing::SharedDocument("002");
};

TEST_F(Seed002, Upsample) {
  EXPECT_EQ(Score(Sample("Upsample"), {{3, 4, 5}}, 2), "some_output [2, 3, 8, 10]");
}

TEST_F(Seed002, Normalize) {
  EXPECT_EQ(Score(Sample("Normalize"), {{3, 4, 5}}, 2), "some_output [2, 3, 4, 5]");
}

TEST_F(Seed002, Reorg) {
  EXPECT_EQ(Score(Sample("Reorg"), {{3, 4, 6}}, 2), "some_output [2, 12, 2, 3]");
}

TEST_F(Seed002, ShuffleChannel) {
  EXPECT_EQ(Score(Sample("ShuffleChannel"), {{6, 2, 2}}, 2), "some_output [2, 6, 2, 2]");
}

TEST_F(Seed002, Yolo) {
  EXPECT_EQ(Score(Sample("Yolo"), {{255, 2, 3}}, 2),
            "yolo1_classes [2, 240, 2, 3], yolo1_coords [2, 12, 2, 3], yolo1_obj [2, 3, 2, 3]");
}

TEST_F(Seed002, PriorBox) {
  const std::vector<std::string> samples = Samples(document_, "PriorBox");
  ASSERT_EQ(samples.size(), 2u);
  // 6 boxes per place, as the document counts.
  EXPECT_EQ(Score(samples[0], {{8, 3, 3}, {3, 30, 30}}, 1), "conv7_2_mbox_priorbox [1, 2, 216]");
  // 4: min, max, ratios 2 and 1/2.
  EXPECT_EQ(Score(samples[1], {{8, 2, 2}}, 1), "some_output [1, 2, 64]");
}

TEST_F(Seed002, SpatialTransformer) {
  EXPECT_EQ(Score(Sample("SpatialTransformer"), {{3, 4, 5}, {2}}, 2), "transformed [2, 3, 4, 5]");
}

// The document defines these two without a sample of their own.
TEST(Seed002WithoutSample, Reverse) {
  EXPECT_EQ(Score("layer { name: \"r\" type: \"Reverse\" bottom: \"x\" top: \"y\" "
                  "reverse_param { axis: 1 axis: -1 } }",
                  {{2, 3}}, 2),
            "y [2, 2, 3]");
}

TEST(Seed002WithoutSample, RoiAlign) {
  EXPECT_EQ(
      Score("layer { name: \"r\" type: \"ROIAlign\" bottom: \"x\" bottom: \"rois\" top: \"y\" "
            "roi_align_param { pooled_h: 2 pooled_w: 3 } }",
            {{2, 6, 6}, {5}}, 1),
      "y [1, 2, 2, 3]");
}

// The rows of the document of the layer framework; values are checked by tests/data/layers.
TEST(Seed001, ConvolutionLayer) {
  std::string weight = "layer_weights_params { name: \"c\" blob_datas { shape: [4, 2, 3, 3]";
  for (int i = 0; i < 4 * 2 * 3 * 3; ++i) absl::StrAppend(&weight, " data: 0.5");
  EXPECT_EQ(Score("layer { name: \"c\" type: \"convolution_layer\" bottom: \"x\" top: \"y\" "
                  "convolution_param { group: 2 stride: 2 pad: 1 bias_term: false } }",
                  {{4, 6, 5}}, 3, weight + " } }"),
            "y [3, 4, 3, 3]");
}

TEST(Seed001, MaxPoolingLayer) {
  EXPECT_EQ(Score("layer { name: \"p\" type: \"max_pooling_layer\" bottom: \"x\" top: \"y\" "
                  "pooling_param { kernel_size: 3 stride: 2 pad: 1 } }",
                  {{4, 6, 5}}, 3),
            "y [3, 4, 3, 3]");
}

TEST(Seed001, Expression) {
  EXPECT_EQ(
      Score("layer { name: \"e\" type: \"expression_layer\" bottom: \"a\" bottom: \"b\" "
            "bottom: \"c\" top: \"y\" expression_param { expression: \"add(@0,mul(@1,@2))\" } }",
            {{4}, {4}, {4}}, 3),
      "y [3, 4]");
}

TEST(Seed001, LayerRegisterer) {
  EXPECT_TRUE(absl::StrContains(
      Score("layer { name: \"c\" type: \"convolution\" bottom: \"x\" top: \"y\" }", {{4}}, 1),
      "convolution_layer"));  // The nearest known one.
}

TEST(Seed001, NonParamLayer) {
  EXPECT_EQ(Score("layer { name: \"r\" type: \"relu_layer\" bottom: \"x\" top: \"y\" }", {{4}}, 3),
            "y [3, 4]");
}

TEST(Seed001, ParamLayer) {
  EXPECT_TRUE(absl::StrContains(
      Score("layer { name: \"c\" type: \"convolution_layer\" bottom: \"x\" top: \"y\" "
            "convolution_param { } }",
            {{4, 6, 5}}, 3),
      "weights"));
}

TEST(Seed001, TokensAndSyntaxTree) {
  const auto expression = Expression::Parse("add(@0,mul(@1,@2))", 3);
  ASSERT_TRUE(expression.ok()) << expression.status();
  EXPECT_EQ(expression->ToString(), "@0 @1 @2 mul add");
  EXPECT_EQ(Expression::Parse("add(@0,mul(@1,@2)", 3).status().message().substr(0, 9), "column 4:");
}

// The document's shape inference: channels * 4, height / 2, width / 2.
TEST(Seed003, Reorg) {
  EXPECT_EQ(Score("layer { name: \"r\" type: \"Reorg\" bottom: \"x\" top: \"y\" reorg_param { } }",
                  {{3, 8, 6}}, 2),
            "y [2, 12, 4, 3]");
}

// The document's way to add a layer.  Converter: tests/tools/convert/caffe_test.cc; verification:
// tests/tools/compare/comparison_test.cc; both ways of each decomposable layer: layer_cases_test.
// The field numbers are those of the document of the operators, which this one contradicts.
TEST(Seed003, ProtoField) {
  const auto* reorg = ulf::LayerParameter::descriptor()->FindFieldByName("reorg_param");
  ASSERT_NE(reorg, nullptr);
  const auto* stride = reorg->message_type()->FindFieldByName("stride");
  const auto* reverse = reorg->message_type()->FindFieldByName("reverse");
  ASSERT_NE(stride, nullptr);
  ASSERT_NE(reverse, nullptr);
  EXPECT_EQ(stride->number(), 2);
  EXPECT_EQ(reverse->number(), 1);
  EXPECT_FALSE(reverse->default_value_bool());
}

TEST(Seed003, Decomposition) {
  for (const char* name : {"Reorg", "ShuffleChannel"}) {
    Notices notices;
    const auto type = FindLayerType(name, notices);
    ASSERT_TRUE(type.ok()) << type.status();
    EXPECT_TRUE((*type)->decomposable) << name;
  }
}

// In a model of layout NHWC the same layer takes and gives images with the channels last.
TEST(Seed003, Layout) {
  EXPECT_EQ(Score("layer { name: \"r\" type: \"Reorg\" bottom: \"x\" top: \"y\" reorg_param { } }",
                  {{8, 6, 3}}, 2, "", "layout: LAYOUT_NHWC"),
            "y [2, 4, 3, 12]");
}

// `layer` and `layer_params` are two names of one thing.
TEST(LayerSpelling, OneOfTheTwo) {
  EXPECT_TRUE(absl::StrContains(
      Score("layer_params { type: \"Reverse\" bottom: \"x\" top: \"y\" reverse_param { axis: 1 } }",
            {{3}}, 1),
      "has 1 layer_params and 1 layer, want one of the two spellings"));
}

}  // namespace
}  // namespace ulfd::engine
