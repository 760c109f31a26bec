// The demo model's graph and embedding configurations.
// SPDX-License-Identifier: Apache-2.0
#include "tools/demo/demo_model.h"

namespace ulfd::tools {
namespace {

constexpr char kGraph[] =
    R"(# A small Deep Interest Network (arXiv:1706.06978): how likely is this user to click on each ad?
# Written by `ulf make-demo`; the preferences are planted in weights.pb and in the tables.
name: "demo_din"
backend: "tensorflow"

# A sparse feature f is three inputs: f.ids (int64), f.values and f.segments (ids per row).
layer_params {
  type: "input_layer"
  top: "user.ids" top: "user.values" top: "user.segments"
  top: "history.ids" top: "history.values" top: "history.segments"
  top: "history_category.ids" top: "history_category.values" top: "history_category.segments"
  top: "ad.ids" top: "ad.values" top: "ad.segments"
  top: "ad_category.ids" top: "ad_category.values" top: "ad_category.segments"
  top: "ad_stats"  # [ads, 2]: freshness and discount, each 0..1
}

# --- Embeddings: one row per ad, and one row for the user.
layer_params {
  type: "embedding_layer" name: "ad_embedding"
  bottom: "ad.ids" bottom: "ad.values" bottom: "ad.segments"
  bottom: "ad_category.ids" bottom: "ad_category.values" bottom: "ad_category.segments"
  top: "ad_e"  # [ads, 32]: item row, category row
  embedding_param { embedding_conf_path: "ad_embedding.conf" level: 0 }
}
layer_params {
  type: "embedding_layer" name: "user_embedding"
  bottom: "user.ids" bottom: "user.values" bottom: "user.segments"
  bottom: "history.ids" bottom: "history.values" bottom: "history.segments"
  bottom: "history_category.ids" bottom: "history_category.values" bottom: "history_category.segments"
  top: "user_e"              # [1, 16]
  top: "history_e"           # [1, 50 * 16], the latest 50 items, zeros in front
  top: "history_category_e"  # [1, 50 * 16]
  embedding_param { embedding_conf_path: "user_embedding.conf" level: 1 }
}
layer_params {
  type: "reshape_layer" name: "history_items" bottom: "history_e" top: "history_items"
  reshape_param { shape: 1 shape: -1 shape: 16 }
}
layer_params {
  type: "reshape_layer" name: "history_categories" bottom: "history_category_e" top: "history_categories"
  reshape_param { shape: 1 shape: -1 shape: 16 }
}
layer_params {
  type: "concat_layer" name: "keys" bottom: "history_items" bottom: "history_categories"
  top: "keys"  # [1, 50, 32]
  concat_param { dim: 2 }
}
layer_params {
  type: "reshape_layer" name: "query" bottom: "ad_e" top: "query"  # [ads, 1, 32]
  reshape_param { shape: -1 shape: 1 shape: 32 }
}

# --- Attention: how much does each item of the history say about this ad?
layer_params { type: "sub_layer" name: "difference" bottom: "query" bottom: "keys" top: "difference" }
layer_params { type: "multiply_layer" name: "product" bottom: "query" bottom: "keys" top: "product" }
layer_params {
  type: "broadcast_to_layer" name: "keys_per_ad" bottom: "keys" bottom: "difference" top: "keys_per_ad"
}
layer_params {
  type: "broadcast_to_layer" name: "query_per_item" bottom: "query" bottom: "difference" top: "query_per_item"
}
layer_params {
  type: "concat_layer" name: "attention_input"
  bottom: "query_per_item" bottom: "keys_per_ad" bottom: "difference" bottom: "product"
  top: "attention_input"  # [ads, 50, 128]
  concat_param { dim: 2 }
}
layer_params {
  type: "inner_product_layer" name: "attention_fc1" bottom: "attention_input" top: "attention_fc1"
}
layer_params { type: "sigmoid_layer" name: "attention_act1" bottom: "attention_fc1" top: "attention_act1" }
layer_params {
  type: "inner_product_layer" name: "attention_fc2" bottom: "attention_act1" top: "attention_fc2"
}
layer_params { type: "sigmoid_layer" name: "attention_act2" bottom: "attention_fc2" top: "attention_act2" }
layer_params {
  type: "inner_product_layer" name: "attention_fc3" bottom: "attention_act2" top: "attention_fc3"
}
layer_params {
  type: "softmax_layer" name: "attention" bottom: "attention_fc3" top: "attention"  # [ads, 50, 1]
  softmax_param { dim: 1 }
}
layer_params {
  type: "batchdot_layer" name: "interest" bottom: "attention" bottom: "keys" top: "interest"  # [ads, 1, 32]
  batch_dot_param { transpose_a: true transpose_b: false }
}

# --- What the ad and the user have in common.
layer_params {
  type: "multiply_layer" name: "query_interest" bottom: "query" bottom: "interest" top: "query_interest"
}
layer_params {
  type: "sum_layer" name: "history_sum" bottom: "keys" top: "history_sum"  # [1, 32]
  sum_param { dim: 1 }
}
layer_params {
  type: "multiply_layer" name: "query_sum" bottom: "query" bottom: "history_sum" top: "query_sum"
}
layer_params {
  type: "concat_layer" name: "match"
  bottom: "query" bottom: "interest" bottom: "query_interest" bottom: "query_sum"
  top: "match_3d"
  concat_param { dim: 2 }
}
layer_params {
  type: "reshape_layer" name: "match_rows" bottom: "match_3d" top: "match"  # [ads, 128]
  reshape_param { shape: -1 shape: 128 }
}
layer_params {
  type: "slice_layer" name: "ad_category_part" bottom: "ad_e" top: "ad_category_e"  # [ads, 16]
  slice_param { concat_dim: 0 slices { offset: 16 shape: 16 } }
}
layer_params {
  type: "multiply_layer" name: "taste" bottom: "ad_category_e" bottom: "user_e" top: "taste"  # [ads, 16]
}
layer_params {
  type: "concat_layer" name: "ad_part" bottom: "match" bottom: "taste" bottom: "ad_stats"
  top: "ad_part"  # [ads, 146]
  concat_param { dim: 1 }
}
layer_params {
  type: "fuse_layer" name: "features" bottom: "user_e" bottom: "ad_part" top: "features"  # [ads, 162]
  fuse_param { common_input_index: 0 }
}

# --- The tower.
layer_params {
  type: "bn_layer" name: "normalize" bottom: "features" top: "normalized"
  bn_param { eps: 0.001 }
}
layer_params { type: "inner_product_layer" name: "fc1" bottom: "normalized" top: "fc1" }
layer_params {
  type: "dice_layer" name: "dice1" bottom: "fc1" top: "dice1"
  dice_param { eps: 1e-8 }
}
layer_params { type: "inner_product_layer" name: "fc2" bottom: "dice1" top: "fc2" }
layer_params { type: "prelu_layer" name: "prelu2" bottom: "fc2" top: "prelu2" }
layer_params { type: "inner_product_layer" name: "fc3" bottom: "prelu2" top: "fc3" }
layer_params { type: "sigmoid_layer" name: "click" bottom: "fc3" top: "ctr" }  # [ads, 1]
)";

constexpr char kUserConf[] =
    R"(# Which table each user feature reads, and how its ids become columns.
feature_group_config { feature_group: "user" table_name: "user_table" dim: 16 }
feature_group_config { feature_group: "history" table_name: "item_table" dim: 16 }
feature_group_config { feature_group: "history_category" table_name: "category_table" dim: 16 }
block_config { embedding_block_config_item { feature_group: "user" udf_type: 0 } }
# udf_type 2: one slot per id, the latest 50 of them.
block_config { embedding_block_config_item { feature_group: "history" udf_type: 2 trunc_num: 50 } }
block_config { embedding_block_config_item { feature_group: "history_category" udf_type: 2 trunc_num: 50 } }
)";

constexpr char kAdConf[] = R"(# Which table each ad feature reads; both rows stand side by side.
feature_group_config { feature_group: "ad" table_name: "item_table" dim: 16 }
feature_group_config { feature_group: "ad_category" table_name: "category_table" dim: 16 }
block_config {
  embedding_block_config_item { feature_group: "ad" udf_type: 0 }
  embedding_block_config_item { feature_group: "ad_category" udf_type: 0 }
}
)";

constexpr char kManifest[] =
    R"(# What the graph cannot say: the rows of ad_stats are ads, two numbers each.
inputs { name: "ad_stats" level: INPUT_LEVEL_AD row_shape: 2 }
outputs: "ctr"
)";

}  // namespace

std::string DemoManifest() { return kManifest; }
std::string DemoGraphText() { return kGraph; }
std::string DemoUserEmbeddingConf() { return kUserConf; }
std::string DemoAdEmbeddingConf() { return kAdConf; }

}  // namespace ulfd::tools
