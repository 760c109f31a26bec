// A step that takes long looks every millisecond of its work whether somebody waits.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/pace.h"

#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ulf.pb.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"

namespace ulfd::engine {
namespace {

// A layer over inputs of ones, with weights of ones.
struct Case {
  std::string name, type, param;
  std::vector<TensorDims> inputs, weights;
  double millions;    // Of multiplications, or what takes as long.
  float output = -1;  // All of it; below 0: what it is says nothing.
  std::string manifest = {};
  std::string tail = {};  // Layers behind it.
};

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {"fc", "inner_product", "", {{60000, 64}}, {{64, 64}, {64}}, 245, 65},
      {"fc_with_rows_of_bias",
       "inner_product",
       "",
       {{1, 600, 640}},
       {{640, 640}, {600, 640}},
       245,
       641},
      {"fc_of_a_user",
       "inner_product",
       "",
       {{1, 60000, 64}},
       {{64, 64}, {64}},
       245,
       65,
       "inputs { name: 'x0' level: INPUT_LEVEL_USER row_shape: [60000, 64] }"},
      {"fused_fc_of_a_user",
       "inner_product",
       "",
       {{1, 60000, 64}},
       {{64, 64}, {64}},
       245,
       65,
       "inputs { name: 'x0' level: INPUT_LEVEL_USER row_shape: [60000, 64] }",
       "layer_params { name: 'z' type: 'relu_layer' bottom: 'y' top: 'z' }"},
      {"fc_in_double",
       "inner_product",
       "",
       {{1, 60000, 64}},
       {{64, 64}, {64}},
       245,
       65,
       "double_layers: 'y'"},
      {"fc_of_one_row_for_all",
       "inner_product_ex",
       "",
       {{1, 640}, {600, 640}},
       {{640, 640}, {640, 640}, {600, 640}},
       490,
       1281},
      {"matrices", "batchdot", "", {{1, 600, 600}, {1, 600, 600}}, {}, 216, 600},
      {"matrices_turned",
       "batchdot",
       "batch_dot_param { transpose_a: true transpose_b: false }",
       {{2, 500, 500}, {2, 500, 500}},
       {},
       250,
       500},
      {"many_matrices", "batchdot", "", {{2000, 50, 50}, {2000, 50, 50}}, {}, 250, 50},
      {"vectors_with_shared_matrices", "batchdot", "", {{500, 8, 1, 300}, {8, 300, 300}}, {}, 360},
      {"gru", "gru", "", {{1, 100000, 32}}, {{32, 96}, {32, 96}, {96}, {96}}, 614},
      {"lstm", "lstm", "", {{1, 100000, 32}}, {{32, 128}, {32, 128}, {128}, {128}}, 818},
      {"rnn", "rnn", "", {{1, 100000, 32}}, {{32, 32}, {32, 32}, {32}, {32}}, 204},
      {"gru_of_many_steps", "gru", "", {{1, 1000000, 1}}, {{1, 3}, {1, 3}, {3}, {3}}, 2000},
      {"convolution", "convolution", "", {{1, 16, 400, 400}}, {{32, 16, 7, 7}, {32}}, 3890, 785},
      {"convolution_of_rows", "convolution", "", {{400, 16, 32, 32}}, {{32, 16, 3, 3}, {32}}, 1600},
      {"convolution_of_one_row",
       "convolution",
       "",
       {{1, 1, 1, 24000}},
       {{64, 1, 1, 2000}, {64}},
       2800,
       2001},
      {"convolution_of_whole_rows",
       "convolution",
       "",
       {{1, 1, 200000, 2}},
       {{16, 1, 50, 2}, {16}},
       320,
       101},
      {"max_pooling",
       "max_pooling",
       "pooling_param { kernel_size: 40 }",
       {{1, 18, 500, 500}},
       {},
       310,
       1},
      {"mean_pooling",
       "max_pooling",
       "pooling_param { kernel_size: 40 pool: AVE }",
       {{1, 18, 500, 500}},
       {},
       310,
       1},
      {"pooling_along_a_row",
       "max_pooling",
       "pooling_param { kernel_size: [1, 4000] pool: AVE }",
       {{1, 1, 1, 100000}},
       {},
       380,
       1},
      {"pooling_of_short_rows",
       "max_pooling",
       "pooling_param { kernel_size: [1, 32] }",
       {{20000, 20, 1, 48}},
       {},
       217,
       1},
      {"pooling_along_columns",
       "max_pooling",
       "pooling_param { kernel_size: [1000, 1] }",
       {{1, 1, 4000, 100}},
       {},
       300,
       1},
      {"top_k", "top_k", "top_k_param { k: 500 }", {{1, 4000000}}, {}, 530},
      {"scatter", "scatter", "", {{100, 2}, {1, 50000}, {1, 50000}}, {}, 320},
      {"scatter_add", "scatter_add", "", {{100, 2}, {1, 50000}, {1, 50000}}, {}, 320},
      {"trees", "trees", "", {{100, 2}}, {{1, 5}, {100000, 2}, {1, 1}, {2}}, 320},
      {"trees_of_wide_leaves",
       "trees",
       "",
       {{1, 2}},
       {{1, 5}, {1000, 2}, {1, 100000}, {100001}},
       800},
      {"regions",
       "roi_align",
       "roi_align_param { pooled_h: 1 pooled_w: 1 sampling_ratio: 2000 }",
       {{2, 1, 4, 4}, {1, 5}},
       {},
       500,
       1},
      {"many_regions",
       "roi_align",
       "roi_align_param { pooled_h: 50 pooled_w: 50 sampling_ratio: 1 }",
       {{2, 10, 4, 4}, {200, 5}},
       {},
       600,
       1},
      {"affine_map",
       "spatial_transformer",
       "spatial_transform_param { output_h: 1000 output_w: 1000 affine_transform: "
       "[1, 0, 0, 0, 1, 0] }",
       {{1, 4, 8, 8}},
       {},
       500},
      {"formula",
       "expression",
       "expression_param { expression: 'sin(exp(@0) + log(@0) * tanh(@0)) + sqrt(@0)' }",
       {{1, 1000, 2000}},
       {},
       200},
      {"formula_of_long_rows",
       "expression",
       "expression_param { expression: '@0 * @1 + sin(@0) * exp(@1)' }",
       {{1, 2, 2000000}, {1, 2, 1}},
       {},
       200},
  };
  return *cases;
}

// Their work is a small multiple of what their inputs, outputs and weights hold, which the price
// of a request bounds (docs/security.md).
const std::set<std::string>& Bounded() {
  static const auto* const types = new std::set<std::string>{
      "add",       "bn",        "broadcast_to", "concat",   "constant",  "dice",
      "div",       "fuse",      "layer_norm",   "multiply", "normalize", "prelu",
      "prior_box", "relu",      "reorg",        "reshape",  "reverse",   "shuffle_channel",
      "sigmoid",   "slice",     "softmax",      "sub",      "sum",       "take",
      "tanh",      "transpose", "upsample",     "where",    "yolo"};
  return *types;
}

std::string TypeOf(const Case& c) {
  return c.type == "inner_product_ex" ? "inner_product_layer_ex" : c.type + "_layer";
}

std::string WeightsOf(const Case& c) {
  std::string text;
  for (const TensorDims& dims : c.weights) {
    int64_t size = 1;
    absl::StrAppend(&text, " blob_datas {");
    for (const int64_t d : dims) absl::StrAppend(&text, " shape: ", d), size *= d;
    text += " data: [1";
    for (int64_t i = 1; i < size; ++i) text += ", 1";
    text += "] }";
  }
  return text.empty() ? text : absl::StrCat("layer_weights_params { name: \"y\"", text, " }");
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class PaceTest : public testing::ModelDirectories, public ::testing::WithParamInterface<Case> {
 protected:
  PaceTest() {
    ulfd::testing::GraphCase model;
    model.name = "m";
    std::string layer = absl::StrCat("layer_params { name: \"y\" type: \"", TypeOf(GetParam()),
                                     "\" top: \"y\" ", GetParam().param);
    model.graph = "layer_params { type: \"input_layer\"";
    for (const TensorDims& dims : GetParam().inputs) {
      const std::string& name = names_.emplace_back(absl::StrCat("x", inputs_.size()));
      absl::StrAppend(&model.graph, " top: \"", name, "\"");
      absl::StrAppend(&layer, " bottom: \"", name, "\"");
      Tensor tensor{DType::kFloat32, dims, nullptr};
      tensor.data = data_.emplace_back(tensor.elements(), 1.0f).data();
      inputs_.push_back({name, tensor});
    }
    if (GetParam().type == "top_k") layer += " top: \"places\"";
    absl::StrAppend(&model.graph, " }\n", layer, " }\n", GetParam().tail);
    model.weights_text = WeightsOf(GetParam());
    model.manifest = GetParam().manifest;
    auto loaded = Model::Load({.directory = ulfd::testing::WriteModelDirectory(model, base_)});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    if (loaded.ok()) model_ = *std::move(loaded);
  }

  std::deque<std::string> names_;
  std::vector<std::vector<float>> data_;
  std::vector<NamedTensor> inputs_;
  std::unique_ptr<const Model> model_;
  Workspace workspace_;
  RunResult result_;
};

TEST_P(PaceTest, LooksWhetherSomebodyWaits) {
  ASSERT_NE(model_, nullptr);
  int looks = 0;
  std::function<bool()> stop = [&looks] { return ++looks > 3; };
  EXPECT_EQ(model_->Run(inputs_, {.stop = &stop}, workspace_, result_).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(looks, 4);
  looks = 0;
  stop = [&looks] { return ++looks < 0; };
  const absl::Status status = model_->Run(inputs_, {.stop = &stop}, workspace_, result_);
  ASSERT_TRUE(status.ok()) << status;
  // Within a factor of two of one each millisecond, or of eight, which is what a tile takes.
  const double wanted = GetParam().millions * 1e6 / static_cast<double>(Pace::kMillisecond);
  EXPECT_GT(looks, wanted / (GetParam().type == "convolution" ? 32 : 2));
  // The pieces are the whole.
  if (GetParam().output < 0) return;
  const Tensor& y = result_.outputs[0];
  for (int64_t i = 0; i < y.elements(); ++i) {
    ASSERT_NEAR(y.f32()[i], GetParam().output, GetParam().output * 1e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, PaceTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return info.param.name;
                         });

class PaceWithin : public testing::ModelDirectories {};

// A single tree of a single row, as deep as there are nodes.
TEST_F(PaceWithin, ATreeThatIsAChain) {
  constexpr int kNodes = 600000;
  ulf::NetWeightsParameter weights;
  ulf::LayerWeightsParameter& layer = *weights.add_layer_weights_params();
  layer.set_name("y");
  const auto add = [&layer](int rows, int columns) -> google::protobuf::RepeatedField<float>& {
    ulf::BlobData& blob = *layer.add_blob_datas();
    blob.add_shape(rows);
    if (columns > 0) blob.add_shape(columns);
    return *blob.mutable_data();
  };
  auto& nodes = add(kNodes, 5);
  for (int i = 1; i <= kNodes; ++i) {
    for (const int number : {0, 10, i, i, 0}) nodes.Add(static_cast<float>(number));
  }
  add(1, 2).Resize(2, 0);
  add(1, 1).Add(0.5f);
  add(1, 0).Add(0.25f);
  const auto model = Model::Load(
      {.directory = ulfd::testing::WriteModelDirectory(
           {.name = "m",
            .graph = "layer_params { type: 'input_layer' top: 'x' } "
                     "layer_params { name: 'y' type: 'trees_layer' bottom: 'x' top: 'y' }",
            .weights_text = weights.SerializeAsString()},
           base_)});
  ASSERT_TRUE(model.ok()) << model.status();
  float x = 1;
  int looks = 0;
  const std::function<bool()> stop = [&looks] { return ++looks < 0; };
  Workspace workspace;
  RunResult result;
  const absl::Status status =
      (*model)->Run({{"x", {DType::kFloat32, {1, 1}, &x}}}, {.stop = &stop}, workspace, result);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(looks, 8);
  EXPECT_EQ(result.outputs[0].f32()[0], 0.75f);
}

// Whoever adds a type says which kind it is of.
TEST(PaceTypes, EachTypeKeepsPaceOrIsBounded) {
  std::set<std::string> paced = {"embedding_layer"};  // Of which pooling_test has a case.
  for (const Case& c : Cases()) paced.insert(TypeOf(c));
  for (const LayerType* type : AllLayerTypes()) {
    std::string name(type->name);
    const bool bounded = Bounded().count(name.substr(0, name.rfind("_layer"))) > 0;
    EXPECT_NE(bounded, paced.count(name) > 0) << name;
  }
}

}  // namespace
}  // namespace ulfd::engine
