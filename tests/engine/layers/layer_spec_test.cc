// What layers say of shapes and levels at load, when the numbers of users and ads are not known
// yet.
// SPDX-License-Identifier: Apache-2.0
#include <google/protobuf/text_format.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/layers/registry.h"
#include "gtest/gtest.h"
#include "tests/testing/no_files.h"

namespace ulfd::engine {
namespace {

Dim ParseDim(absl::string_view text) {
  int64_t factor = 1;
  std::vector<absl::string_view> parts = absl::StrSplit(text, '*');
  if (parts.size() == 2 && !absl::SimpleAtoi(parts[0], &factor)) ADD_FAILURE() << text;
  if (parts.back() == "users") return Dim::Users(factor);
  if (parts.back() == "ads") return Dim::Ads(factor);
  if (parts.back() == "?") return Dim::Unknown();
  if (!absl::SimpleAtoi(text, &factor)) ADD_FAILURE() << text;
  return Dim::Of(factor);
}

// "[users, 100, 18] user", "int32 [...] unknown".
TensorSpec ParseSpec(absl::string_view text) {
  TensorSpec spec;
  for (DType dtype : {DType::kInt32, DType::kInt64}) {
    if (absl::ConsumePrefix(&text, absl::StrCat(Name(dtype), " "))) spec.dtype = dtype;
  }
  const std::vector<std::string> parts = absl::StrSplit(text.substr(1), absl::MaxSplits("] ", 1));
  for (Level level : {Level::kConstant, Level::kUser, Level::kAd, Level::kUnknown}) {
    if (parts.at(1) == Name(level)) spec.level = level;
  }
  if (parts[0] == "...") return spec;
  Shape::Dims dims;
  for (absl::string_view dim : absl::StrSplit(parts[0], ", ", absl::SkipEmpty())) {
    dims.push_back(ParseDim(dim));
  }
  spec.shape = Shape(dims);
  return spec;
}

std::string ToText(const TensorSpec& spec) {
  const std::string type = spec.dtype == DType::kFloat32 ? "" : absl::StrCat(Name(spec.dtype), " ");
  return absl::StrCat(type, spec.shape.ToString(), " ", Name(spec.level));
}

using Weights = std::vector<std::vector<int64_t>>;

// A layer of that type with `bottoms` bottoms and weights of those shapes, all ones.
class TestLayer {
 public:
  TestLayer(const std::string& type, const std::string& param, int bottoms,
            const Weights& weights) {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(param, &param_)) << param;
    param_.set_type(type + "_layer");
    if (absl::EndsWith(type, "_ex")) param_.set_type("inner_product_layer_ex");
    for (int i = 0; i < bottoms; ++i) param_.add_bottom(absl::StrCat("x", i));
    param_.add_top("y");
    values_.assign(1 << 20, 1.0f);
    for (const std::vector<int64_t>& dims : weights) {
      Weight weight;
      weight.name = absl::StrCat("weight ", weights_.size());
      int64_t size = 1;
      for (int64_t d : dims) size *= d;
      weight.dims.assign(dims.begin(), dims.end());
      weight.data = absl::MakeConstSpan(values_.data(), size);
      weights_.push_back(weight);
    }
    auto layer = ParseLayer(
        {.param = param_, .weights = weights_, .resources = files_, .notices = notices_});
    EXPECT_TRUE(layer.ok()) << layer.status();
    if (layer.ok()) layer_ = *std::move(layer);
  }
  const Layer& operator*() const { return *layer_; }

 private:
  ulf::LayerParameter param_;
  std::vector<float> values_;
  std::vector<Weight> weights_;
  testing::NoFiles files_;
  Notices notices_;
  std::unique_ptr<Layer> layer_;
};

// The spec of the output, or the error.
std::string Infer(const std::string& type, const std::string& param,
                  std::initializer_list<absl::string_view> inputs, const Weights& weights = {}) {
  const TestLayer layer(type, param, static_cast<int>(inputs.size()), weights);
  std::vector<TensorSpec> specs;
  for (absl::string_view text : inputs) specs.push_back(ParseSpec(text));
  const auto out = (*layer).Infer(specs);
  if (!out.ok()) return std::string(out.status().message());
  return ToText((*out)[0]);
}

// What the layer suggests for those inputs, joined by " | ".
std::string Suggest(const std::string& type, const std::string& param,
                    std::initializer_list<absl::string_view> inputs, const Weights& weights = {}) {
  const TestLayer layer(type, param, static_cast<int>(inputs.size()), weights);
  std::vector<TensorSpec> specs;
  for (absl::string_view text : inputs) specs.push_back(ParseSpec(text));
  (*layer).SuggestInputs(absl::MakeSpan(specs));
  std::string text;
  for (const TensorSpec& spec : specs) {
    absl::StrAppend(&text, text.empty() ? "" : " | ", ToText(spec));
  }
  return text;
}

// A tower over images: rows stay rows, whoever they belong to.
TEST(ImageShapes, RowsKeepTheirLevel) {
  for (const std::string rows : {"users", "ads"}) {
    const std::string level = rows == "users" ? "user" : "ad";
    const auto spec = [&](absl::string_view dims) {
      return absl::StrCat("[", rows, ", ", dims, "] ", level);
    };
    const std::string image = spec("8, 6, 4");
    EXPECT_EQ(Infer("convolution", "convolution_param { stride: 2 pad: 1 }", {image},
                    {{5, 8, 3, 3}, {5}}),
              spec("5, 3, 2"));
    EXPECT_EQ(Infer("max_pooling", "pooling_param { kernel_size: 2 stride: 2 }", {image}),
              spec("8, 3, 2"));
    EXPECT_EQ(Infer("reorg", "", {image}), spec("32, 3, 2"));
    EXPECT_EQ(Infer("reorg", "reorg_param { reverse: true }", {image}), spec("2, 12, 8"));
    EXPECT_EQ(Infer("shuffle_channel", "shuffle_channel_param { group: 4 }", {image}), image);
    EXPECT_EQ(Infer("upsample", "", {image}), spec("8, 12, 8"));
    EXPECT_EQ(Infer("normalize", "", {image}), image);
    EXPECT_EQ(Infer("reverse", "reverse_param { axis: -1 }", {image}), image);
    EXPECT_EQ(Infer("transpose", "transpose_param { perm: [0, 2, 3, 1] }", {image}),
              spec("6, 4, 8"));
    EXPECT_EQ(Infer("expression", "expression_param { expression: '@0*2' }", {image}), image);
    EXPECT_EQ(Infer("spatial_transformer", "", {image, spec("6")}), image);
  }
}

TEST(ImageShapes, RowsThatMoveAreNotProved) {
  EXPECT_EQ(Infer("reverse", "reverse_param { axis: 0 }", {"[ads, 3] ad"}), "[ads, 3] unknown");
  EXPECT_EQ(Infer("transpose", "transpose_param { perm: [1, 0] }", {"[ads, 3] ad"}),
            "[3, ads] unknown");
}

// A user's image and the ads' regions or maps: the ads lead.
TEST(ImageShapes, UsersImageBesideAds) {
  EXPECT_EQ(Infer("roi_align", "roi_align_param { pooled_h: 2 pooled_w: 3 }",
                  {"[users, 8, 6, 4] user", "[ads, 5] ad"}),
            "[ads, 8, 2, 3] ad");
  // A region may look at any row.
  EXPECT_EQ(Infer("roi_align", "roi_align_param { pooled_h: 2 pooled_w: 3 }",
                  {"[ads, 8, 6, 4] ad", "[ads, 5] ad"}),
            "[ads, 8, 2, 3] unknown");
  EXPECT_EQ(Infer("spatial_transformer", "", {"[users, 8, 6, 4] user", "[ads, 6] ad"}),
            "[ads, 8, 6, 4] ad");
  EXPECT_EQ(Infer("expression", "expression_param { expression: '@0+@1' }",
                  {"[ads, 1, 36] ad", "[users, 100, 36] user"}),
            "[ads, 100, 36] ad");
}

TEST(ImageShapes, BoxesDependOnSizesAlone) {
  const std::string param = "prior_box_param { min_size: 3 img_size: 30 }";
  EXPECT_EQ(Infer("prior_box", param, {"[users, 8, 6, 4] user"}), "[1, 2, 96] constant");
  EXPECT_EQ(Infer("prior_box", param, {"[ads, 8, 6, 4] ad"}), "[1, 2, 96] unknown");
}

TEST(ImageShapes, UnknownSizesStayUnknown) {
  EXPECT_EQ(Infer("convolution", "", {"[ads, ?, ?, 9] ad"}, {{5, 8, 3, 3}, {5}}),
            "[ads, 5, ?, 7] ad");
  EXPECT_EQ(Infer("reorg", "", {"[?, ?, ?, 4] unknown"}), "[?, ?, ?, 2] unknown");
}

// The layers of the published DIN model, in its order.
TEST(DinShapes, AreProvedFromTheEmbeddingsToTheScores) {
  const std::string history = "reshape_param { shape: 1 shape: -1 shape: 18 }";
  EXPECT_EQ(Infer("reshape", history, {"[users, 1800] user"}), "[users, 100, 18] user");
  EXPECT_EQ(Infer("concat", "concat_param { dim: 2 }",
                  {"[users, 100, 18] user", "[users, 100, 18] user"}),
            "[users, 100, 36] user");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: -1 shape: 1 shape: 36 }", {"[ads, 36] ad"}),
            "[ads, 1, 36] ad");
  EXPECT_EQ(Infer("sub", "", {"[ads, 1, 36] ad", "[users, 100, 36] user"}), "[ads, 100, 36] ad");
  EXPECT_EQ(Infer("broadcast_to", "", {"[users, 100, 36] user", "[ads, 100, 36] ad"}),
            "[ads, 100, 36] ad");
  EXPECT_EQ(Infer("broadcast_to", "", {"[ads, 1, 36] ad", "[ads, 100, 36] ad"}),
            "[ads, 100, 36] ad");
  EXPECT_EQ(Infer("concat", "concat_param { dim: 2 }",
                  {"[ads, 100, 36] ad", "[ads, 100, 36] ad", "[ads, 100, 36] ad"}),
            "[ads, 100, 108] ad");
  EXPECT_EQ(Infer("inner_product", "", {"[ads, 100, 144] ad"}, {{144, 80}, {80}}),
            "[ads, 100, 80] ad");
  EXPECT_EQ(Infer("sigmoid", "", {"[ads, 100, 80] ad"}), "[ads, 100, 80] ad");
  EXPECT_EQ(Infer("constant", "constant_param { blob_data { shape: [1, 2, 1] data: [1, 2] } }", {}),
            "[1, 2, 1] constant");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 1 shape: 100 shape: 1 }",
                  {"int32 [users, 100] user"}),
            "int32 [users, 100, 1] user");
  EXPECT_EQ(Infer("where", "",
                  {"int32 [users, 100, 1] user", "[ads, 100, 1] ad", "[1, 100, 1] constant"}),
            "[ads, 100, 1] ad");
  EXPECT_EQ(Infer("softmax", "softmax_param { dim: 1 }", {"[ads, 100, 1] ad"}), "[ads, 100, 1] ad");
  EXPECT_EQ(Infer("batchdot", "batch_dot_param { transpose_a: true transpose_b: false }",
                  {"[ads, 100, 1] ad", "[users, 100, 36] user"}),
            "[ads, 1, 36] ad");
  EXPECT_EQ(Infer("sum", "sum_param { dim: 1 }", {"[users, 100, 36] user"}), "[users, 36] user");
  // numpy puts the user's single row under axis 1; it is a plain 1 there.
  EXPECT_EQ(Infer("multiply", "", {"[ads, 1, 36] ad", "[users, 36] user"}), "[ads, 1, 36] ad");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: -1 shape: 72 }", {"[ads, 1, 72] ad"}),
            "[ads, 72] ad");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: -1 shape: 36 }", {"[users, 36] user"}),
            "[users, 36] user");
  EXPECT_EQ(
      Infer("fuse", "fuse_param { common_input_index: 0 }", {"[users, 36] user", "[ads, 72] ad"}),
      "[ads, 108] ad");
  EXPECT_EQ(Infer("bn", "bn_param { eps: 1 }", {"[ads, 162] ad"}, {{162}, {162}, {162}, {162}}),
            "[ads, 162] ad");
  EXPECT_EQ(Infer("dice", "dice_param { eps: 1 }", {"[ads, 200] ad"}, {{200}, {200}, {200}}),
            "[ads, 200] ad");
}

TEST(Levels, AreGivenUpWhereRowsMix) {
  EXPECT_EQ(Infer("sum", "sum_param { dim: 0 }", {"[ads, 3] ad"}), "[3] unknown");
  EXPECT_EQ(Infer("sum", "sum_param { dim: 0 }", {"[ads, ads] unknown"}), "[ads] unknown");
  EXPECT_EQ(Infer("sum", "sum_param { dim: 0 }", {"[2, 3] constant"}), "[3] constant");
  EXPECT_EQ(Infer("softmax", "softmax_param { dim: 0 }", {"[ads, 3] ad"}), "[ads, 3] unknown");
  EXPECT_EQ(Infer("softmax", "", {"[users, 3] user"}), "[users, 3] user");
  EXPECT_EQ(Infer("take", "", {"[ads, 5] ad", "[3, 2] constant"}), "[?, 2] unknown");
  EXPECT_EQ(Infer("concat", "concat_param { dim: 0 }", {"[ads, 3] ad", "[ads, 3] ad"}),
            "[2*ads, 3] unknown");
  EXPECT_EQ(Infer("concat", "", {"[users, 3] user", "[ads, 3] ad", "[ads, 2] ad"}),
            "[?, 8] unknown");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 1 shape: -1 }", {"[ads, 3] ad"}),
            "[1, 3*ads] unknown");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: -1 shape: 3 }", {"[ads, 6] ad"}),
            "[2*ads, 3] unknown");
  EXPECT_EQ(Infer("add", "", {"[ads, 3] ad", "[4, 3] constant"}), "[?, 3] unknown");
  EXPECT_EQ(Infer("add", "", {"[ads, 3] ad", "[users, ads, 3] unknown"}),
            "[users, ads, 3] unknown");
  EXPECT_EQ(Infer("gru", "", {"[ads, 3] ad"}, {{3, 9}, {3, 9}, {9}, {9}}), "[1, ads, 3] unknown");
  EXPECT_EQ(Infer("gru", "", {"[ads, 5, 3] ad"}, {{3, 9}, {3, 9}, {9}, {9}}), "[ads, 5, 3] ad");
  // A slope that is longer than a row is another one for every other ad.
  EXPECT_EQ(Infer("prelu", "", {"[ads, 3] ad"}, {{6}}), "[ads, 3] unknown");
  EXPECT_EQ(Infer("prelu", "", {"[ads, ?, 3] ad"}, {{3}}), "[ads, ?, 3] ad");
  EXPECT_EQ(Infer("prelu", "", {"[ads, ?] ad"}, {{3}}), "[ads, ?] unknown");
  EXPECT_EQ(Infer("prelu", "", {"[ads, ?] ad"}, {{1}}), "[ads, ?] ad");
  // A bias of several rows belongs to places, not to ads.
  EXPECT_EQ(Infer("inner_product", "", {"[ads, 3] ad"}, {{3, 2}, {4, 2}}), "[?, 2] unknown");
  // Exports leave level 0 on user features; the one row of the common input is known all the same.
  EXPECT_EQ(Infer("fuse", "", {"[ads, 3] ad", "[ads, 2] ad"}), "[ads, 5] unknown");
}

TEST(Levels, OfTheUserAreKept) {
  EXPECT_EQ(Infer("add", "", {"[users, 3] user", "[1, 3] constant"}), "[users, 3] user");
  EXPECT_EQ(Infer("add", "", {"[users, 3] user", "[3] constant"}), "[users, 3] user");
  EXPECT_EQ(Infer("fuse", "", {"[users, 3] user", "[users, 2] user"}), "[users, 5] user");
  EXPECT_EQ(Infer("fuse", "", {"[users, 3] user", "[1, 2] constant"}), "[users, 5] user");
  EXPECT_EQ(
      Infer("fuse", "fuse_param { common_input_index: 1 }", {"[ads, 3] ad", "[1, 2] constant"}),
      "[ads, 5] ad");
  EXPECT_EQ(
      Infer("inner_product_ex", "", {"[users, 3] user", "[ads, 4] ad"}, {{3, 2}, {4, 2}, {2}}),
      "[ads, 2] ad");
  EXPECT_EQ(
      Infer("inner_product_ex", "", {"[ads, 3] ad", "[users, 4] user"}, {{3, 2}, {4, 2}, {2}}),
      "[ads, 2] ad");
  EXPECT_EQ(Infer("concat", "", {"[users, 3] user", "[1, 2] constant"}), "[users, 5] user");
  EXPECT_EQ(Infer("slice", "slice_param { concat_dim: 0 slices { offset: 2 shape: [3, 2] } }",
                  {"[users, 20] user"}),
            "[users, 3, 2] user");
  EXPECT_EQ(Infer("broadcast_to", "broadcast_to_param { shape: 1 shape: 4 shape: 0 }",
                  {"[users, 1, 3] user"}),
            "[users, 4, 3] user");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 0 shape: -1 }", {"[users, 4, 3] user"}),
            "[users, 12] user");
  EXPECT_EQ(Infer("batchdot", "", {"[users, 5, 3] user", "[ads, 3] ad"}), "[ads, 5, 1] ad");
  EXPECT_EQ(Infer("take", "", {"[users, 5, 3] user", "[users, 2, 1] user"}), "[users, 2, 3] user");
  EXPECT_EQ(Infer("take", "", {"[users, 5, 3] user", "[ads, 2, 1] ad"}), "[ads, 2, 3] ad");
  EXPECT_EQ(Infer("take", "", {"[ads, 5, 3] ad", "[users, 2, 3] user"}), "[ads, 2, 3] ad");
  const Weights tree = {{1, 5}, {1, 2}, {1, 1}, {3}};
  EXPECT_EQ(Infer("trees", "", {"[users, 2] user"}, tree), "[users, 3] user");
  EXPECT_EQ(Infer("trees", "", {"[ads, 4] ad"}, tree), "[ads, 3] ad");
}

TEST(Shapes, ThatCannotBeToldStayOpen) {
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 1 shape: -1 shape: 18 }", {"[users, ?] user"}),
            "[users, ?, 18] user");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 1 shape: 100 }", {"[?, ?] unknown"}),
            "[1, 100] unknown");
  EXPECT_EQ(Infer("concat", "", {"[?, 3] unknown", "[ads, ?] ad"}), "[ads, ?] unknown");
  EXPECT_EQ(Infer("add", "", {"[?, 3] unknown", "[ads, 1] ad"}), "[?, 3] unknown");
  EXPECT_EQ(Infer("inner_product", "", {"[?, ?] unknown"}, {{3, 2}, {2}}), "[?, 2] unknown");
  EXPECT_EQ(Infer("trees", "", {"[?, ?] unknown"}, {{1, 5}, {1, 2}, {1, 1}, {3}}),
            "[?, 3] unknown");
  EXPECT_EQ(Infer("slice", "slice_param { concat_dim: 0 slices { offset: 2 shape: 3 } }",
                  {"[ads, ?] ad"}),
            "[ads, 3] ad");
  EXPECT_EQ(Infer("broadcast_to", "", {"[1, 3] constant", "[ads, ?] ad"}), "[ads, 3] ad");
  EXPECT_EQ(Infer("batchdot", "", {"[ads, 2, ?] ad", "[ads, 5, 3] ad"}), "[ads, 2, 5] ad");
}

TEST(Shapes, ThatNeverFitAreRefusedAtLoad) {
  EXPECT_EQ(Infer("add", "", {"[ads, 3] ad", "[users, 2] user"}),
            "input 1: shapes [ads, 3] and [users, 2] do not broadcast");
  EXPECT_EQ(Infer("concat", "concat_param { dim: 2 }", {"[ads, 1, 3] ad", "[ads, 2, 3] ad"}),
            "input 1: shape [ads, 2, 3], want input 0's shape [ads, 1, 3] except along axis 2");
  EXPECT_EQ(Infer("inner_product", "", {"[ads, 5] ad"}, {{3, 2}, {2}}),
            "input 0: shape [ads, 5], want last dimension 3 to match weight 0 of shape [3, 2]");
  EXPECT_EQ(
      Infer("reshape", "reshape_param { shape: 1 shape: 100 shape: 1 }", {"[users, 99] user"}),
      "input 0: shape [users, 99], want 100 elements rather than 99 for "
      "reshape_param.shape [1, 100, 1]");
  EXPECT_EQ(Infer("reshape", "reshape_param { shape: 3 }", {"[users, 2] user"}),
            "input 0: shape [users, 2], want 3 elements rather than 2*users for "
            "reshape_param.shape [3]");
  EXPECT_EQ(
      Infer("prelu", "", {"[users, 3] user"}, {{2}}),
      "input 0: shape [users, 3], want a multiple of 2 elements (the size of the parameters)");
  EXPECT_EQ(Infer("fuse", "", {"[4, 3] constant", "[ads, 2] ad"}),
            "input 0: shape [4, 3], want 1 row (fuse_param.common_input_index names it)");
  EXPECT_EQ(Infer("broadcast_to", "", {"[users, 3] user", "[ads, 4] ad"}),
            "input 0: shape [users, 3], want a shape that broadcasts to [ads, 4]");
}

TEST(Suggestions, FillInWhatALayerExpects) {
  const absl::string_view open = "[...] unknown";
  EXPECT_EQ(Suggest("inner_product", "", {open}, {{3, 2}, {2}}), "[?, 3] unknown");
  EXPECT_EQ(
      Suggest("inner_product", "inner_product_param { transpose: true }", {open}, {{3, 2}, {3}}),
      "[?, 2] unknown");
  EXPECT_EQ(Suggest("inner_product_ex", "", {open, open}, {{3, 2}, {4, 2}, {2}}),
            "[?, 3] unknown | [?, 4] unknown");
  EXPECT_EQ(Suggest("fuse", "", {open, open}), "[users, ?] user | [ads, ?] ad");
  EXPECT_EQ(Suggest("fuse", "fuse_param { common_input_index: 1 }", {open, open}),
            "[ads, ?] ad | [users, ?] user");
  EXPECT_EQ(
      Suggest("reshape", "reshape_param { shape: 1 shape: 100 shape: 1 }", {"int32 [...] unknown"}),
      "int32 [users, 100] user");
  EXPECT_EQ(Suggest("reshape", "reshape_param { shape: 1 shape: -1 shape: 18 }", {open}),
            "[users, ?] user");
  EXPECT_EQ(Suggest("reshape", "reshape_param { shape: -1 shape: 18 }", {open}), open);
  EXPECT_EQ(Suggest("bn", "bn_param { eps: 1 }", {open}, {{5}, {5}, {5}, {5}}), "[?, 5] unknown");
  EXPECT_EQ(Suggest("dice", "dice_param { eps: 1 }", {open}, {{5}, {5}, {5}}), "[?, 5] unknown");
  EXPECT_EQ(Suggest("prelu", "", {open}, {{5}}), "[?, 5] unknown");
  EXPECT_EQ(Suggest("prelu", "", {open}, {{1}}), open);
  EXPECT_EQ(Suggest("where", "", {open, open, open}),
            "int32 [...] unknown | [...] unknown | [...] unknown");
  EXPECT_EQ(Suggest("gru", "", {open}, {{3, 9}, {3, 9}, {9}, {9}}), "[?, ?, 3] unknown");
}

TEST(Suggestions, LeaveAloneWhatIsKnown) {
  EXPECT_EQ(Suggest("inner_product", "", {"[ads, ?] ad"}, {{3, 2}, {2}}), "[ads, 3] ad");
  EXPECT_EQ(Suggest("inner_product", "", {"[ads, 7, ?] ad"}, {{3, 2}, {2}}), "[ads, 7, ?] ad");
  EXPECT_EQ(Suggest("fuse", "", {"[users, 4] user", "[...] unknown"}),
            "[users, 4] user | [ads, ?] ad");
  EXPECT_EQ(Suggest("where", "", {"int64 [2] constant", "[...] unknown", "[...] unknown"}),
            "int64 [2] constant | [...] unknown | [...] unknown");
}

}  // namespace
}  // namespace ulfd::engine
