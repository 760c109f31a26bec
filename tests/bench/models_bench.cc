// Whole models in process: embedding lookups, the user's part, the ads' part; no RPC.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/model_bench.h"
#include "tests/bench/scratch_model.h"

namespace ulfd::bench {
namespace {

using Models = std::vector<std::unique_ptr<const engine::Model>>;
using Loaded = absl::StatusOr<std::unique_ptr<const engine::Model>>;

// A multilayer perceptron 306-200-80-2 on dense columns of the ads; nothing belongs to the user.
void BuildMlp(ScratchModel& m) {
  m.Input("x", {306});
  m.Layer("inner_product_layer", {"x"}, "fc1", "", {{306, 200}, {200}});
  m.Layer("prelu_layer", {"fc1"}, "act1", "", {{200}});
  m.Layer("inner_product_layer", {"act1"}, "fc2", "", {{200, 80}, {80}});
  m.Layer("prelu_layer", {"fc2"}, "act2", "", {{80}});
  m.Layer("inner_product_layer", {"act2"}, "fc3", "", {{80, 2}, {2}});
  m.Layer("softmax_layer", {"fc3"}, "score", "softmax_param { dim: 1 }");
}

// A Deep Interest Network (arXiv:1706.06978) of the size of the public export: 100 history items of 36 columns, attention
// 144-80-40-1, tower 144-200-80-2.
void BuildDin(ScratchModel& m) {
  m.Feature("ad", 36, 10000);
  m.Feature("user", 36, 1000);
  m.Feature("history_list", 36, 10000);
  m.Embedding({"ad"}, {"ad_e"}, "udf_type: 0", /*user=*/false);
  m.Embedding({"user"}, {"user_e"}, "udf_type: 0", /*user=*/true);
  m.Embedding({"history_list"}, {"history_e"}, "udf_type: 2 trunc_num: 100", /*user=*/true);
  m.Layer("reshape_layer", {"history_e"}, "keys", "reshape_param { shape: 1 shape: -1 shape: 36 }");
  m.Layer("reshape_layer", {"ad_e"}, "query", "reshape_param { shape: -1 shape: 1 shape: 36 }");
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
  m.Layer("softmax_layer", {"att3"}, "att", "softmax_param { dim: 1 }");
  m.Layer("batchdot_layer", {"att", "keys"}, "interest3",
          "batch_dot_param { transpose_a: true transpose_b: false }");
  m.Layer("reshape_layer", {"interest3"}, "interest", "reshape_param { shape: -1 shape: 36 }");
  m.Layer("sum_layer", {"keys"}, "history_sum", "sum_param { dim: 1 }");
  m.Layer("concat_layer", {"ad_e", "interest"}, "ad_part", "concat_param { dim: 1 }");
  m.Layer("fuse_layer", {"history_sum", "ad_part"}, "fused",
          "fuse_param { common_input_index: 0 }");
  m.Layer("fuse_layer", {"user_e", "fused"}, "features", "fuse_param { common_input_index: 0 }");
  m.Layer("bn_layer", {"features"}, "bn", "bn_param { eps: 0.001 }", {{144}, {144}, {144}, {144}});
  m.Layer("inner_product_layer", {"bn"}, "fc1", "", {{144, 200}, {200}});
  m.Layer("dice_layer", {"fc1"}, "dice1", "dice_param { eps: 1e-8 }", {{200}, {200}, {200}});
  m.Layer("inner_product_layer", {"dice1"}, "fc2", "", {{200, 80}, {80}});
  m.Layer("dice_layer", {"fc2"}, "dice2", "dice_param { eps: 1e-8 }", {{80}, {80}, {80}});
  m.Layer("inner_product_layer", {"dice2"}, "fc3", "", {{80, 2}, {2}});
  m.Layer("softmax_layer", {"fc3"}, "score", "softmax_param { dim: 1 }");
}

bool Register(const std::string& name, Loaded loaded, const MadeUpIds& ids, Models& models) {
  if (!loaded.ok()) {
    std::fprintf(stderr, "models_bench: %s: %s\n", name.c_str(),
                 loaded.status().ToString().c_str());
    return false;
  }
  models.push_back(*std::move(loaded));
  RegisterModel(name, *models.back(), ids);
  return true;
}

int Main(int argc, char** argv) {
  const TempDirectory scratch;
  Models models;
  ScratchModel mlp, din;
  BuildMlp(mlp);
  BuildDin(din);
  const MadeUpIds own{.per_user = 100, .table_rows = 1000};
  if (!Register("mlp_306_200_80_2", mlp.Load(scratch.path() + "/mlp/1"), own, models)) return 1;
  if (!Register("din_100x36", din.Load(scratch.path() + "/din/1"), own, models)) return 1;
  for (const char* name : {"din", "tdm_dnn"}) {
    const std::string directory = absl::StrCat(ULFD_SHARED, "/models/", name, "/1");
    if (!std::filesystem::is_directory(directory)) {
      std::fprintf(stderr, "models_bench: no %s, left out\n", directory.c_str());
      continue;
    }
    Loaded loaded = engine::Model::Load({.directory = directory});
    if (!Register(absl::StrCat("export_", name), std::move(loaded), {}, models)) return 1;
  }
  return RunAll(argc, argv);
}

}  // namespace
}  // namespace ulfd::bench

int main(int argc, char** argv) { return ulfd::bench::Main(argc, argv); }
