// The models that the benchmarks write and measure.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bench_models.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace ulfd::bench {
namespace {

// fc1, act1, fc2, act2, ..., softmax "score", on `in` with `width` columns.
void AddMlp(ScratchModel& m, std::string in, int32_t width, const std::vector<int32_t>& widths,
            const std::string& activation) {
  for (size_t i = 0; i < widths.size(); ++i) {
    const int32_t n = widths[i];
    const std::string fc = absl::StrCat("fc", i + 1), act = absl::StrCat("act", i + 1);
    m.Layer("inner_product_layer", {in}, fc, "", {{width, n}, {n}});
    in = fc;
    width = n;
    if (i + 1 == widths.size()) break;
    if (activation == "prelu_layer") {
      m.Layer(activation, {fc}, act, "", {{n}});
    } else {
      m.Layer(activation, {fc}, act);
    }
    in = act;
  }
  m.Layer("softmax_layer", {in}, "score", "softmax_param { dim: 1 }");
}

// From `query` [ads, 1, 36] and `keys` [1, 100, 36] to the attention's score before the softmax,
// "att3".
void AddDinAttention(ScratchModel& m) {
  m.Layer("sub_layer", {"query", "keys"}, "diff");
  m.Layer("multiply_layer", {"query", "keys"}, "prod");
  m.Layer("broadcast_to_layer", {"keys", "diff"}, "keys_b");
  m.Layer("broadcast_to_layer", {"query", "diff"}, "query_b");
  m.Layer("concat_layer", {"query_b", "keys_b", "diff", "prod"}, "att_in",
          "concat_param { dim: 2 }");
  m.Layer("inner_product_layer", {"att_in"}, "att1", "", {{144, 80}, {80}});
  m.Layer("sigmoid_layer", {"att1"}, "att1_act");
  m.Layer("inner_product_layer", {"att1_act"}, "att2", "", {{80, 40}, {40}});
  m.Layer("sigmoid_layer", {"att2"}, "att2_act");
  m.Layer("inner_product_layer", {"att2_act"}, "att3", "", {{40, 1}, {1}});
}

// bn, then FCs of 200, 80 and 2 with dice, softmax, on "features".
void AddDinTower(ScratchModel& m, int32_t width) {
  m.Layer("bn_layer", {"features"}, "bn", "bn_param { eps: 0.001 }",
          {{width}, {width}, {width}, {width}});
  m.Layer("inner_product_layer", {"bn"}, "fc1", "", {{width, 200}, {200}});
  m.Layer("dice_layer", {"fc1"}, "dice1", "dice_param { eps: 1e-8 }", {{200}, {200}, {200}});
  m.Layer("inner_product_layer", {"dice1"}, "fc2", "", {{200, 80}, {80}});
  m.Layer("dice_layer", {"fc2"}, "dice2", "dice_param { eps: 1e-8 }", {{80}, {80}, {80}});
  m.Layer("inner_product_layer", {"dice2"}, "fc3", "", {{80, 2}, {2}});
  m.Layer("softmax_layer", {"fc3"}, "score", "softmax_param { dim: 1 }");
}

}  // namespace

void BuildMlp(ScratchModel& m, const std::vector<int32_t>& widths, const std::string& activation) {
  m.Input("x", {widths[0]});
  AddMlp(m, "x", widths[0], {widths.begin() + 1, widths.end()}, activation);
}

void BuildUserMlp(ScratchModel& m, int32_t user, int32_t ad, const std::vector<int32_t>& widths,
                  const std::string& activation) {
  m.Input("user", {user}, /*user=*/true);
  m.Input("ad", {ad});
  m.Layer("fuse_layer", {"user", "ad"}, "features", "fuse_param { common_input_index: 0 }");
  AddMlp(m, "features", user + ad, widths, activation);
}

void BuildGru(ScratchModel& m, int32_t steps, int32_t width) {
  m.Input("history", {steps, width}, /*user=*/true);
  m.Input("ad", {width});
  m.Layer("gru_layer", {"history"}, "states", "",
          {{width, 3 * width}, {width, 3 * width}, {3 * width}, {3 * width}});
  m.Layer("slice_layer", {"states"}, "user",
          absl::StrCat("slice_param { concat_dim: 0 slices { offset: ", (steps - 1) * width,
                       " shape: ", width, " } }"));
  m.Layer("fuse_layer", {"user", "ad"}, "features", "fuse_param { common_input_index: 0 }");
  AddMlp(m, "features", 2 * width, {200, 80, 2}, "relu_layer");
}

void BuildDinWithLookups(ScratchModel& m) {
  m.Feature("ad", 36, 10000);
  m.Feature("user", 36, 1000);
  m.Feature("history_list", 36, 10000);
  m.Embedding({"ad"}, {"ad_e"}, "udf_type: 0", /*user=*/false);
  m.Embedding({"user"}, {"user_e"}, "udf_type: 0", /*user=*/true);
  m.Embedding({"history_list"}, {"history_e"}, "udf_type: 2 trunc_num: 100", /*user=*/true);
  m.Layer("reshape_layer", {"history_e"}, "keys", "reshape_param { shape: 1 shape: -1 shape: 36 }");
  m.Layer("reshape_layer", {"ad_e"}, "query", "reshape_param { shape: -1 shape: 1 shape: 36 }");
  AddDinAttention(m);
  m.Layer("softmax_layer", {"att3"}, "att", "softmax_param { dim: 1 }");
  m.Layer("batchdot_layer", {"att", "keys"}, "interest3",
          "batch_dot_param { transpose_a: true transpose_b: false }");
  m.Layer("reshape_layer", {"interest3"}, "interest", "reshape_param { shape: -1 shape: 36 }");
  m.Layer("sum_layer", {"keys"}, "history_sum", "sum_param { dim: 1 }");
  m.Layer("concat_layer", {"ad_e", "interest"}, "ad_part", "concat_param { dim: 1 }");
  m.Layer("fuse_layer", {"history_sum", "ad_part"}, "fused",
          "fuse_param { common_input_index: 0 }");
  m.Layer("fuse_layer", {"user_e", "fused"}, "features", "fuse_param { common_input_index: 0 }");
  AddDinTower(m, 144);
}

void BuildDin(ScratchModel& m) {
  m.Input("ad", {kDinEmbedding});
  m.Input("uid", {kDinUser}, /*user=*/true);
  m.Input("history", {kDinHistory, kDinEmbedding}, /*user=*/true);
  m.Input("mask", {kDinHistory}, /*user=*/true);
  std::string paddings;
  for (int64_t i = 0; i < kDinHistory; ++i) absl::StrAppend(&paddings, " data: -4294967295");
  m.Layer("reshape_layer", {"history"}, "keys", "reshape_param { shape: 1 shape: -1 shape: 36 }");
  m.Layer("reshape_layer", {"ad"}, "query", "reshape_param { shape: -1 shape: 1 shape: 36 }");
  AddDinAttention(m);
  m.Layer(
      "constant_layer", {}, "paddings",
      absl::StrCat("constant_param { blob_data { shape: 1 shape: 100 shape: 1", paddings, " } }"));
  m.Layer("reshape_layer", {"mask"}, "mask3", "reshape_param { shape: 1 shape: 100 shape: 1 }");
  m.Layer("where_layer", {"mask3", "att3", "paddings"}, "att_masked");
  m.Layer("softmax_layer", {"att_masked"}, "att", "softmax_param { dim: 1 }");
  m.Layer("batchdot_layer", {"att", "keys"}, "interest",
          "batch_dot_param { transpose_a: true transpose_b: false }");
  m.Layer("sum_layer", {"keys"}, "history_sum", "sum_param { dim: 1 }");
  m.Layer("multiply_layer", {"query", "history_sum"}, "query_sum");
  m.Layer("concat_layer", {"query_sum", "interest"}, "ad_part3", "concat_param { dim: 2 }");
  m.Layer("reshape_layer", {"ad_part3"}, "ad_part", "reshape_param { shape: -1 shape: 72 }");
  m.Layer("reshape_layer", {"history_sum"}, "history_flat",
          "reshape_param { shape: -1 shape: 36 }");
  m.Layer("fuse_layer", {"history_flat", "ad_part"}, "fused",
          "fuse_param { common_input_index: 0 }");
  m.Layer("concat_layer", {"ad", "fused"}, "concat", "concat_param { dim: 1 }");
  m.Layer("fuse_layer", {"uid", "concat"}, "features", "fuse_param { common_input_index: 0 }");
  AddDinTower(m, 162);
}

namespace {

constexpr int32_t kHeadColumns = 64, kHistoryColumns = 108;

// One head over `history` [1, steps, 108]: `name` is what the product with its weights gives.
void AddHead(ScratchModel& m, const std::string& history, const std::string& name) {
  const std::string low = name + "_low", query = name + "_query", keys = name + "_keys";
  m.Layer("inner_product_layer", {"query"}, low, "", {{kHistoryColumns, 8}, {8}});
  m.Layer("inner_product_layer", {low}, query, "", {{8, kHeadColumns}, {kHeadColumns}});
  m.Layer("inner_product_layer", {history}, keys, "",
          {{kHistoryColumns, kHeadColumns}, {kHeadColumns}});
  m.Layer("batchdot_layer", {keys, query}, name + "_logits");
  m.Layer("softmax_layer", {name + "_logits"}, name + "_weights", "softmax_param { dim: 1 }");
  m.Layer("multiply_layer", {keys, name + "_weights"}, name);
}

}  // namespace

void BuildHeads(ScratchModel& m) {
  constexpr int32_t kSteps[] = {150, 150, 50, 50}, kProfile = 306, kAd = 732;
  m.Input("user", {kProfile + 400 * kHistoryColumns}, /*user=*/true);
  m.Input("ad", {kAd});
  const auto slice = [&](const std::string& in, const std::string& out, int32_t offset,
                         const std::string& shape) {
    m.Layer("slice_layer", {in}, out,
            absl::StrCat("slice_param { concat_dim: 0 slices { offset: ", offset, shape, " } }"));
  };
  slice("user", "profile", 0, absl::StrCat(" shape: ", kProfile));
  slice("ad", "query", 72, absl::StrCat(" shape: ", kHistoryColumns));
  int32_t offset = kProfile;
  for (size_t h = 0; h < std::size(kSteps); ++h) {
    const std::string n = absl::StrCat(h), history = "history" + n;
    slice("user", history, offset,
          absl::StrCat(" shape: ", kSteps[h], " shape: ", kHistoryColumns));
    offset += kSteps[h] * kHistoryColumns;
    for (const char* head : {"a", "b", "c"}) AddHead(m, history, head + n);
    m.Layer("concat_layer", {"a" + n, "b" + n, "c" + n}, "heads" + n, "concat_param { dim: 2 }");
    m.Layer("sum_layer", {"heads" + n}, "interest" + n, "sum_param { dim: 1 }");
    m.Layer("sum_layer", {history}, "sum" + n, "sum_param { dim: 1 }");
  }
  m.Layer("concat_layer", {"profile", "sum0", "sum1"}, "shared", "concat_param { dim: 1 }");
  m.Layer("fuse_layer", {"ad", "shared"}, "fused", "fuse_param { common_input_index: 1 }");
  m.Layer("concat_layer", {"fused", "interest0", "interest1", "interest2", "interest3"}, "features",
          "concat_param { dim: 1 }");
  int32_t width = kProfile + kAd + 2 * kHistoryColumns + 12 * kHeadColumns;
  m.Layer("bn_layer", {"features"}, "x0", "bn_param { eps: 0.001 }",
          {{width}, {width}, {width}, {width}});
  constexpr int32_t kWidths[] = {512, 256, 128, 64, 32};
  for (size_t i = 0; i < std::size(kWidths); ++i) {
    const std::string in = absl::StrCat("x", i), fc = absl::StrCat("fc", i + 1);
    m.Layer("inner_product_layer", {in}, fc, "", {{width, kWidths[i]}, {kWidths[i]}});
    width = kWidths[i];
    m.Layer("dice_layer", {fc}, absl::StrCat("x", i + 1), "dice_param { eps: 1e-8 }",
            {{width}, {width}, {width}});
  }
  m.Layer("inner_product_layer", {"x5"}, "fc6", "", {{width, 2}, {2}});
  m.Layer("softmax_layer", {"fc6"}, "score", "softmax_param { dim: 1 }");
}

}  // namespace ulfd::bench
