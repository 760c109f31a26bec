// The model that request fuzzers run on.
// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/small_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/tensor/onednn.h"
#include "tests/fuzz/fuzz.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::fuzz {

const engine::Model& SmallModel() {
  static const engine::Model* const model = [] {
    engine::UseOneThread();
    const std::string directory = EmptyScratch("small/1");
    testing::WriteTinyModel(directory);
    WriteScratch("small/1/graph_ulf.txt", absl::StrCat(testing::kTinyGraph, R"(
layer_params { type: "input_layer" name: "more" top: "free" top: "left" top: "right" }
layer_params { type: "sum_layer" name: "sum" bottom: "free" top: "sum" sum_param { dim: 1 } }
layer_params { type: "multiply_layer" name: "product" bottom: "left" bottom: "right" top: "product" }
)"));
    auto loaded = engine::Model::Load({.directory = directory});
    if (!loaded.ok()) Fail(loaded.status().ToString());
    return loaded->release();
  }();
  return *model;
}

const std::vector<std::string>& SmallModelNames() {
  static const auto* const names = new std::vector<std::string>(absl::StrSplit(
      "uid mid price mask free left right uid.ids uid.segments uid.values mid.ids mid.segments "
      "mid.values items of_ad of_user score user_vec sum product FP32 INT32 INT64 small 1 "
      "binary_data_size",
      ' '));
  return *names;
}

}  // namespace ulfd::fuzz
