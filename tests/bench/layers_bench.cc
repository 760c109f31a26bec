// Each layer type alone, as a model of one layer (one more where a layer has no input of its own).
// SPDX-License-Identifier: Apache-2.0
//
// The time holds what Model::Run does around the layer: checking the inputs and copying the outputs
// out.
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/registry.h"
#include "tests/bench/model_bench.h"
#include "tests/bench/scratch_model.h"

namespace ulfd::bench {
namespace {

constexpr int64_t kWidth = 200;  // Columns of a layer in the tower.
constexpr int64_t kSteps = 50;   // History.
constexpr int64_t kDim = 32;     // Embedding.

using Build = std::function<void(ScratchModel&)>;

// Two inputs: the ads' [ads, 1, kDim] and the user's history [1, kSteps, kDim].
Build Broadcasting(const std::string& type) {
  return [type](ScratchModel& model) {
    model.Input("ad", {1, kDim});
    model.Input("history", {kSteps, kDim}, /*user=*/true);
    model.Layer(type, {"ad", "history"}, "y");
  };
}

Build OneInput(const std::string& type, const std::string& param = "", int vectors = 0) {
  return [=](ScratchModel& model) {
    model.Input("x", {kWidth});
    const std::vector<int32_t> v = {static_cast<int32_t>(kWidth)};
    switch (vectors) {
      case 0:
        return model.Layer(type, {"x"}, "y", param);
      case 1:
        return model.Layer(type, {"x"}, "y", param, {v});
      case 2:
        return model.Layer(type, {"x"}, "y", param, {v, v});
      case 3:
        return model.Layer(type, {"x"}, "y", param, {v, v, v});
      default:
        return model.Layer(type, {"x"}, "y", param, {v, v, v, v});
    }
  };
}

void History(ScratchModel& model, const std::string& type, const std::string& param) {
  model.Input("x", {kSteps, kDim});
  model.Layer(type, {"x"}, "y", param);
}

void AddMatrixCases(std::map<std::string, Build>& cases) {
  cases["inner_product_layer"] = [](ScratchModel& m) {
    m.Input("x", {kWidth});
    m.Layer("inner_product_layer", {"x"}, "y", "", {{kWidth, kWidth}, {kWidth}});
  };
  cases["inner_product_layer_ex"] = [](ScratchModel& m) {
    m.Input("user", {kWidth}, /*user=*/true);
    m.Input("ad", {kWidth});
    m.Layer("inner_product_layer_ex", {"user", "ad"}, "y", "",
            {{kWidth, kWidth}, {kWidth, kWidth}, {kWidth}});
  };
  cases["batchdot_layer"] = [](ScratchModel& m) {
    m.Input("weight", {kSteps, 1});
    m.Input("history", {kSteps, kDim}, /*user=*/true);
    m.Layer("batchdot_layer", {"weight", "history"}, "y",
            "batch_dot_param { transpose_a: true transpose_b: false }");
  };
  cases["gru_layer"] = [](ScratchModel& m) {
    m.Input("x", {kSteps, kDim});
    m.Layer("gru_layer", {"x"}, "y", "",
            {{kDim, 3 * kDim}, {kDim, 3 * kDim}, {3 * kDim}, {3 * kDim}});
  };
  cases["lstm_layer"] = [](ScratchModel& m) {
    m.Input("x", {kSteps, kDim});
    m.Layer("lstm_layer", {"x"}, "y", "",
            {{kDim, 4 * kDim}, {kDim, 4 * kDim}, {4 * kDim}, {4 * kDim}});
  };
  cases["rnn_layer"] = [](ScratchModel& m) {
    m.Input("x", {kSteps, kDim});
    m.Layer("rnn_layer", {"x"}, "y", "", {{kDim, kDim}, {kDim, kDim}, {kDim}, {kDim}});
  };
}

void AddShapeCases(std::map<std::string, Build>& cases) {
  cases["broadcast_to_layer"] = [](ScratchModel& m) {
    m.Input("history", {kSteps, kDim}, /*user=*/true);
    m.Input("like", {kSteps, kDim});
    m.Layer("broadcast_to_layer", {"history", "like"}, "y");
  };
  cases["concat_layer"] = [](ScratchModel& m) {
    m.Input("a", {kWidth});
    m.Input("b", {kWidth});
    m.Layer("concat_layer", {"a", "b"}, "y", "concat_param { dim: 1 }");
  };
  cases["fuse_layer"] = [](ScratchModel& m) {
    m.Input("user", {kWidth}, /*user=*/true);
    m.Input("ad", {kWidth});
    m.Layer("fuse_layer", {"user", "ad"}, "y", "fuse_param { common_input_index: 0 }");
  };
  cases["reshape_layer"] = [](ScratchModel& m) {
    History(m, "reshape_layer", absl::StrCat("reshape_param { shape: -1 shape: ", kDim, " }"));
  };
  cases["slice_layer"] = [](ScratchModel& m) {
    History(m, "slice_layer",
            absl::StrCat("slice_param { concat_dim: 0 slices { offset: 64 shape: ", kDim, " } }"));
  };
  cases["sum_layer"] = [](ScratchModel& m) { History(m, "sum_layer", "sum_param { dim: 1 }"); };
  cases["softmax_layer"] = [](ScratchModel& m) {
    m.Input("x", {kSteps, 1});
    m.Layer("softmax_layer", {"x"}, "y", "softmax_param { dim: 1 }");
  };
  cases["constant_layer"] = [](ScratchModel& m) {  // Read by an addition: alone it does nothing.
    std::string data;
    for (int64_t i = 0; i < kWidth; ++i) absl::StrAppend(&data, " data: 0.5");
    m.Input("x", {kWidth});
    m.Layer("constant_layer", {}, "c",
            absl::StrCat("constant_param { blob_data { shape: 1 shape: ", kWidth, data, " } }"));
    m.Layer("add_layer", {"x", "c"}, "y");
  };
  cases["where_layer"] = [](ScratchModel& m) {  // The one int32 input is called "mask".
    m.Input("mask", {kSteps, 1}, /*user=*/true);
    m.Input("x", {kSteps, kDim});
    m.Input("otherwise", {kSteps, kDim}, /*user=*/true);
    m.Layer("where_layer", {"mask", "x", "otherwise"}, "y");
  };
}

// Images as a ranking model has them: small, after a few layers.
constexpr int64_t kChannels = 16, kSide = 14;

Build OneImage(const std::string& type, const std::string& param = "",
               int64_t channels = kChannels) {
  return [=](ScratchModel& model) {
    model.Input("x", {channels, kSide, kSide});
    model.Layer(type, {"x"}, "y", param);
  };
}

void AddChoiceCases(std::map<std::string, Build>& cases) {
  cases["top_k_layer"] = [](ScratchModel& m) {
    m.Input("x", {kSteps});
    m.Layer("top_k_layer", {"x"}, "best", "top: \"places\" top_k_param { k: 5 }");
  };
  cases["take_layer"] = [](ScratchModel& m) {
    m.Input("history", {kSteps, kDim}, /*user=*/true);
    m.Input("index", {5, 1});
    m.Layer("take_layer", {"history", "index"}, "y");
  };
  for (const char* const type : {"scatter_layer", "scatter_add_layer"}) {
    cases[type] = [type](ScratchModel& m) {
      m.Input("zeros", {kSteps}, /*user=*/true);
      m.Input("index", {5});
      m.Input("update", {5});
      m.Layer(type, {"zeros", "index", "update"}, "y");
    };
  }
}

void AddTreeCases(std::map<std::string, Build>& cases) {
  cases["trees_layer"] = [](ScratchModel& m) {
    m.Input("x", {100});
    m.Trees("x", "y", 100, 500, 6);
  };
}

void AddImageCases(std::map<std::string, Build>& cases) {
  cases["expression_layer"] = [](ScratchModel& m) {
    m.Input("ad", {1, kDim});
    m.Input("history", {kSteps, kDim}, /*user=*/true);
    m.Layer("expression_layer", {"ad", "history"}, "y",
            "expression_param { expression: '(@0-@1)*(@0-@1)+@0*@1-@0' }");
  };
  cases["convolution_layer"] = [](ScratchModel& m) {
    m.Input("x", {kChannels, kSide, kSide});
    m.Layer("convolution_layer", {"x"}, "y", "convolution_param { pad: 1 }",
            {{32, kChannels, 3, 3}, {32}});
  };
  cases["max_pooling_layer"] =
      OneImage("max_pooling_layer", "pooling_param { kernel_size: 3 stride: 2 pad: 1 }");
  cases["transpose_layer"] =
      OneImage("transpose_layer", "transpose_param { perm: [ 0, 2, 3, 1 ] }");
  cases["reverse_layer"] = OneImage("reverse_layer", "reverse_param { axis: -1 }");
  cases["reorg_layer"] = OneImage("reorg_layer");
  cases["shuffle_channel_layer"] =
      OneImage("shuffle_channel_layer", "shuffle_channel_param { group: 4 }");
  cases["upsample_layer"] = OneImage("upsample_layer");
  cases["normalize_layer"] = OneImage("normalize_layer", "norm_param { across_spatial: false }");
  cases["spatial_transformer_layer"] =
      OneImage("spatial_transformer_layer",
               "spatial_transform_param { affine_transform: [ 0.9, 0.1, 0, -0.1, 0.9, 0 ] }");
  cases["yolo_layer"] = [](ScratchModel& m) {
    m.Input("x", {3 * 25, kSide, kSide});
    m.Layer("yolo_layer", {"x"}, "xywh",
            "top: \"object\" top: \"class\" yolo_param { classes: 20 }");
  };
  cases["prior_box_layer"] = [](ScratchModel& m) {
    m.Input("x", {kChannels, kSide, kSide}, /*user=*/true);
    m.Layer("prior_box_layer", {"x"}, "y",
            "prior_box_param { min_size: 30 aspect_ratio: 2 img_size: 300 }");
    m.Input("z", {kWidth});
    m.Layer("relu_layer", {"z"}, "w");
  };
  cases["roi_align_layer"] =
      [](ScratchModel& m) {  // The regions: made of an input of zeros and ones.
        m.Input("image", {kChannels, kSide, kSide}, /*user=*/true);
        m.Input("ad", {5});
        m.Layer("constant_layer", {}, "corners",
                "constant_param { blob_data { shape: 1 shape: 5 data: 0 data: 1 data: 1 data: 9 "
                "data: 8 } }");
        m.Layer("sub_layer", {"ad", "ad"}, "zero");
        m.Layer("add_layer", {"zero", "corners"}, "regions");
        m.Layer("roi_align_layer", {"image", "regions"}, "y",
                "roi_align_param { pooled_h: 3 pooled_w: 3 sampling_ratio: 2 }");
      };
}

std::map<std::string, Build> Cases() {
  std::map<std::string, Build> cases;
  for (const char* type : {"add_layer", "sub_layer", "multiply_layer", "div_layer"}) {
    cases[type] = Broadcasting(type);
  }
  for (const char* type : {"relu_layer", "sigmoid_layer", "tanh_layer"}) {
    cases[type] = OneInput(type);
  }
  cases["prelu_layer"] = OneInput("prelu_layer", "", 1);
  cases["dice_layer"] = OneInput("dice_layer", "dice_param { eps: 1e-8 }", 3);
  cases["bn_layer"] = OneInput("bn_layer", "bn_param { eps: 0.001 }", 4);
  cases["layer_norm_layer"] = OneInput("layer_norm_layer", "", 2);
  AddMatrixCases(cases);
  AddShapeCases(cases);
  AddChoiceCases(cases);
  AddTreeCases(cases);
  AddImageCases(cases);
  cases["embedding_layer"] = [](ScratchModel& m) {
    m.Feature("ad", kDim, 10000);
    m.Embedding({"ad"}, {"y"}, "udf_type: 0", /*user=*/false);
  };
  return cases;
}

int Main(int argc, char** argv) {
  const TempDirectory scratch;
  const std::map<std::string, Build> cases = Cases();
  for (const engine::LayerType* type : engine::AllLayerTypes()) {
    if (cases.count(std::string(type->name)) != 0) continue;
    std::fprintf(stderr, "layers_bench: no case for %s\n", std::string(type->name).c_str());
    return 1;
  }
  std::vector<std::unique_ptr<const engine::Model>> models;
  for (const auto& [name, build] : cases) {
    ScratchModel model;
    build(model);
    auto loaded = model.Load(absl::StrCat(scratch.path(), "/", name, "/1"));
    if (!loaded.ok()) {
      std::fprintf(stderr, "layers_bench: %s: %s\n", name.c_str(),
                   loaded.status().ToString().c_str());
      return 1;
    }
    models.push_back(*std::move(loaded));
    RegisterModel(name, *models.back(), {.table_rows = 10000});
  }
  return RunAll(argc, argv);
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
