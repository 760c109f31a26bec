// The table of layer types and the checks that all types share, by exact text.
// SPDX-License-Identifier: Apache-2.0
#include "engine/layers/registry.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/no_files.h"
#include "tests/testing/paths.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The message of parsing `text` with `weights` vectors of two values as weights; "" if it parses.
std::string ParseError(const std::string& text, int weights = 0) {
  ulf::LayerParameter param;
  if (!google::protobuf::TextFormat::ParseFromString(text, &param)) return "text does not parse";
  const std::vector<float> values = {1, 2};
  std::vector<Weight> blobs(weights);
  for (Weight& w : blobs) {
    w.dims = {2};
    w.data = values;
  }
  testing::NoFiles files;
  Notices notices;
  const auto layer =
      ParseLayer({.param = param, .weights = blobs, .resources = files, .notices = notices});
  EXPECT_TRUE(layer.ok() || layer.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(layer.status().message());
}

TEST(Registry, HasEveryTypeOnce) {
  std::vector<std::string> names;
  for (const LayerType* type : AllLayerTypes()) names.emplace_back(type->name);
  EXPECT_THAT(
      names,
      ElementsAre("add_layer", "batchdot_layer", "bn_layer", "broadcast_to_layer", "concat_layer",
                  "constant_layer", "convolution_layer", "dice_layer", "div_layer",
                  "embedding_layer", "expression_layer", "fuse_layer", "gru_layer",
                  "inner_product_layer", "inner_product_layer_ex", "layer_norm_layer", "lstm_layer",
                  "max_pooling_layer", "multiply_layer", "normalize_layer", "prelu_layer",
                  "prior_box_layer", "relu_layer", "reorg_layer", "reshape_layer", "reverse_layer",
                  "rnn_layer", "roi_align_layer", "scatter_add_layer", "scatter_layer",
                  "shuffle_channel_layer", "sigmoid_layer", "slice_layer", "softmax_layer",
                  "spatial_transformer_layer", "sub_layer", "sum_layer", "take_layer", "tanh_layer",
                  "top_k_layer", "transpose_layer", "trees_layer", "upsample_layer", "where_layer",
                  "yolo_layer"));
}

TEST(Registry, EveryTypeIsFuzzed) {
  const std::string corpus = testing::SourceDir() + "/tests/fuzz/corpus/model/layer_";
  for (const LayerType* type : AllLayerTypes()) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat(corpus, type->name))) << type->name;
  }
}

TEST(Registry, RowsAreComplete) {
  for (const LayerType* type : AllLayerTypes()) {
    EXPECT_FALSE(type->summary.empty()) << type->name;
    EXPECT_NE(type->parse, nullptr) << type->name;
    EXPECT_GE(type->outputs.min, 1) << type->name;
    EXPECT_LE(type->inputs.min, type->inputs.max) << type->name;
    EXPECT_LE(type->weights.min, type->weights.max) << type->name;
    if (type->param_field != 0) {
      const auto* field = ulf::LayerParameter::descriptor()->FindFieldByNumber(type->param_field);
      ASSERT_NE(field, nullptr) << type->name;
      EXPECT_NE(field->message_type(), nullptr) << type->name;
    }
  }
}

TEST(Registry, FindsTypesByNameWithoutNotice) {
  for (const LayerType* type : AllLayerTypes()) {
    Notices notices;
    const auto found = FindLayerType(type->name, notices);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, type);
    EXPECT_THAT(notices, IsEmpty());
  }
}

// The extension operators under the names of their document.
TEST(Registry, AcceptsPublishedNamesWithoutNotice) {
  const std::pair<const char*, const char*> names[] = {
      {"Reverse", "reverse_layer"},
      {"Upsample", "upsample_layer"},
      {"Normalize", "normalize_layer"},
      {"Reorg", "reorg_layer"},
      {"PassThrough", "reorg_layer"},
      {"ROIAlign", "roi_align_layer"},
      {"ShuffleChannel", "shuffle_channel_layer"},
      {"Yolo", "yolo_layer"},
      {"PriorBox", "prior_box_layer"},
      {"SpatialTransformer", "spatial_transformer_layer"},
      {"SpatialTransform", "spatial_transformer_layer"}};
  for (const auto& [published, ours] : names) {
    Notices notices;
    const auto found = FindLayerType(published, notices);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ((*found)->name, ours);
    EXPECT_THAT(notices, IsEmpty());
  }
}

TEST(Registry, ExtensionOperatorsHaveTheirPublishedNumbers) {
  const std::pair<const char*, int> numbers[] = {
      {"reverse_param", 157}, {"upsample_param", 160},  {"norm_param", 206},
      {"reorg_param", 155},   {"roi_align_param", 154}, {"shuffle_channel_param", 159},
      {"yolo_param", 199},    {"prior_box_param", 203}, {"spatial_transform_param", 153}};
  for (const auto& [name, number] : numbers) {
    const auto* field = ulf::LayerParameter::descriptor()->FindFieldByName(name);
    ASSERT_NE(field, nullptr) << name;
    EXPECT_EQ(field->number(), number) << name;
  }
}

TEST(Registry, ReadsTheGuidesSpellingsWithANotice) {
  Notices notices;
  auto found = FindLayerType("rehshape_layer", notices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->name, "reshape_layer");
  found = FindLayerType("reduce_layer", notices);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)->name, "sum_layer");
  EXPECT_THAT(notices, ElementsAre("type \"rehshape_layer\" is read as reshape_layer",
                                   "type \"reduce_layer\" is read as sum_layer"));
}

TEST(Registry, RefusesUnknownTypes) {
  EXPECT_EQ(ParseError("type: 'sigmod_layer'"),
            "unknown layer type \"sigmod_layer\" (the nearest known one is sigmoid_layer)");
  EXPECT_EQ(ParseError("type: 'Softmax_layer'"),
            "unknown layer type \"Softmax_layer\" (the nearest known one is softmax_layer)");
  EXPECT_EQ(ParseError("type: 'inner_product_layerex'"),
            "unknown layer type \"inner_product_layerex\" (the nearest known one is "
            "inner_product_layer_ex)");
  EXPECT_EQ(ParseError("name: 'x'"), "the layer has no type");
  EXPECT_EQ(ParseError("type: 'multiply_concat_sum_layer'"),
            "multiply_concat_sum_layer is not supported: the published format names it without a "
            "definition");
  // Part of the graph, not a computation.
  EXPECT_EQ(ParseError("type: 'input_layer'").substr(0, 32), "unknown layer type \"input_layer\"");
}

TEST(Registry, ChecksTheNumberOfBottomsTopsAndWeights) {
  EXPECT_EQ(ParseError("type: 'relu_layer' bottom: 'x' top: 'y'"), "");
  EXPECT_EQ(ParseError("type: 'relu_layer' top: 'y'"), "0 bottoms, want 1");
  EXPECT_EQ(ParseError("type: 'relu_layer' bottom: 'x'"), "0 tops, want 1");
  EXPECT_EQ(ParseError("type: 'div_layer' bottom: 'x' top: 'y'"), "1 bottom, want 2");
  EXPECT_EQ(ParseError("type: 'broadcast_to_layer' bottom: 'a' bottom: 'b' bottom: 'c' top: 'y'"),
            "3 bottoms, want 1 to 2");
  EXPECT_EQ(ParseError("type: 'concat_layer' top: 'y'"), "0 bottoms, want at least 1");
  EXPECT_EQ(ParseError("type: 'relu_layer' bottom: 'x' top: 'y'", 1), "1 weight, want 0");
  EXPECT_EQ(ParseError("type: 'inner_product_layer' bottom: 'x' top: 'y'", 3),
            "3 weights, want 1 to 2");
}

// Every message that a layer may carry, under every type that does not read it: exporters leave
// them there.
// Each ratio is compared with all others: a million of them would take hours.
TEST(Registry, BoundsTheSizesOfPriorBoxes) {
  const auto error = [](absl::string_view field) {
    std::string text =
        "type: 'prior_box_layer' bottom: 'x' top: 'y' prior_box_param { img_size: 9 ";
    for (int i = 1; i <= 1001; ++i) absl::StrAppend(&text, field, ": ", i, " ");
    return ParseError(text + (field == "min_size" ? "}" : "min_size: 1 }"));
  };
  EXPECT_EQ(error("min_size"), "prior_box_param.min_size: 1001 values, want at most 1000");
  EXPECT_EQ(error("aspect_ratio"), "prior_box_param.aspect_ratio: 1001 values, want at most 1000");
}

TEST(Registry, IgnoresParametersOfOtherTypesWithANotice) {
  const auto* descriptor = ulf::LayerParameter::descriptor();
  int messages = 0;
  for (const LayerType* type : AllLayerTypes()) {
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const auto* field = descriptor->field(i);
      if (field->message_type() == nullptr || field->number() == type->param_field ||
          field->number() == type->other_param_field) {
        continue;
      }
      ulf::LayerParameter param;
      param.set_type(std::string(type->name));
      param.GetReflection()->MutableMessage(&param, field);
      testing::NoFiles files;
      Notices notices;
      const auto layer = ParseLayer({.param = param, .resources = files, .notices = notices});
      EXPECT_THAT(notices, ::testing::Contains(absl::StrCat(
                               field->name(), " is ignored: ", type->name, " does not read it")));
      ++messages;
    }
  }
  EXPECT_GT(messages, 300);
}

TEST(Registry, ParsesALayerWithAParameterThatItDoesNotRead) {
  EXPECT_EQ(
      ParseError("type: 'add_layer' bottom: 'a' bottom: 'b' top: 'y' concat_param { dim: 1 }"), "");
}

}  // namespace
}  // namespace ulfd::engine
