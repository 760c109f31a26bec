// A small real model with something of everything: for tests that need scores they can work out by
// hand.
//
//   score[i] = (mid row sum + price, uid row [0] + bias 0.5)    [ads, 2]
//   user_vec = relu(uid row)                                    [1, 2]
//
// Sparse features "uid" (user, table uid_table: 1 -> 0.5, -0.25) and "mid" (ads, table mid_table:
// 10 -> 1, 0; 11 -> 2, 0; 12 -> 3, 0); dense inputs "price" (ads, [ads, 1]) and "mask" (int32, [1,
// 2], multiplies nothing but must be there), both described by a manifest.  As a matrix, "mid" is
// "items" with padding 0.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_TINY_MODEL_H_
#define ULFD_TESTS_TESTING_TINY_MODEL_H_

#include <filesystem>
#include <fstream>
#include <string>

namespace ulfd::testing {

inline constexpr char kTinyGraph[] = R"(
layer_params {
  type: "input_layer"
  top: "uid.ids" top: "uid.values" top: "uid.segments"
  top: "mid.ids" top: "mid.values" top: "mid.segments"
  top: "price" top: "mask"
}
layer_params {
  type: "embedding_layer" name: "user" bottom: "uid.ids" bottom: "uid.values" bottom: "uid.segments"
  top: "uid_vec" embedding_param { embedding_conf_path: "user.conf" level: 1 }
}
layer_params {
  type: "embedding_layer" name: "ad" bottom: "mid.ids" bottom: "mid.values" bottom: "mid.segments"
  top: "mid_vec" embedding_param { embedding_conf_path: "ad.conf" level: 0 }
}
layer_params {
  type: "where_layer" name: "masked" bottom: "mask" bottom: "uid_vec" bottom: "uid_vec" top: "masked"
}
layer_params {
  type: "fuse_layer" name: "fuse" bottom: "masked" bottom: "mid_vec" top: "fused"
  fuse_param { common_input_index: 0 }
}
layer_params {
  type: "concat_layer" name: "all" bottom: "fused" bottom: "price" top: "all" concat_param { dim: 1 }
}
layer_params { type: "inner_product_layer" name: "fc" bottom: "all" top: "score" }
layer_params { type: "relu_layer" name: "relu" bottom: "uid_vec" top: "user_vec" }
)";

// A PredictRequest of three ads, whose scores are 3.25, 1; 1.5, 1; 6, 1.
inline constexpr char kTinyRequest[] = R"(
  model { name: "tiny" }
  user_features { name: "uid" sparse { ids: 1 } }
  user_features { name: "mask" dense { int32s: [1, 1] } }
  ad_features { name: "mid" sparse { ids: [12, 10, 11] } }
  ad_features { name: "price" dense { floats: [0.25, 0.5, 4] } }
)";

// Columns of "all": uid 0, uid 1, mid 0, mid 1, price.
inline constexpr char kTinyWeights[] = R"(
layer_weights_params {
  name: "fc"
  blob_datas { shape: 5 shape: 2 data: [0, 1,  0, 0,  1, 0,  1, 0,  1, 0] }
  blob_datas { shape: 2 data: [0, 0.5] }
}
)";

inline std::string TinyConf(const std::string& feature) {
  return "feature_group_config { feature_group: \"" + feature + "\" table_name: \"" + feature +
         "_table\" dim: 2 }\nblock_config { embedding_block_config_item { feature_group: \"" +
         feature + "\" udf_type: 0 } }\n";
}

// Writes the model as the version directory `directory`.
inline void WriteTinyModel(const std::string& directory) {
  std::filesystem::create_directories(directory);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(directory + "/" + name) << text;
  };
  write("graph_ulf.txt", kTinyGraph);
  write("weights.pb", kTinyWeights);
  write("user.conf", TinyConf("uid"));
  write("ad.conf", TinyConf("mid"));
  write("uid_table", "1,0.5,-0.25\n");
  write("mid_table", "10,1,0\n11,2,0\n12,3,0\n");
  write("model.textproto",
        "inputs { name: \"price\" level: INPUT_LEVEL_AD row_shape: 1 }\n"
        "inputs { name: \"mask\" level: INPUT_LEVEL_USER row_shape: 2 }\n"
        "features { name: \"mid\" matrix: \"items\" padding_id: 0 }\n"
        "matrices { name: \"of_ad\" columns: 3 parts { name: \"mid\" columns: 2 }\n"
        "           parts { name: \"price\" columns: 0 } }\n"
        "matrices { name: \"of_user\" columns: 3 parts { name: \"uid\" columns: 1 }\n"
        "           parts { name: \"mask\" columns: 2 columns: 0 } }\n");
  write("_SUCCESS", "");
}

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_TINY_MODEL_H_
