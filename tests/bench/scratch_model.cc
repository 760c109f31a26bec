// Models that the benchmarks write to a temporary directory, and requests made up for any model.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/scratch_model.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ulfd::bench {
namespace {

using engine::DType;
using engine::InputInfo;
using engine::Level;

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
}

int64_t ExtentOf(const engine::Dim& dim, int64_t ads) {
  if (dim.IsAds()) return dim.value() * ads;
  if (dim.IsUnknown()) return 1;
  return dim.value();
}

}  // namespace

TempDirectory::TempDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "ulfd_bench.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::exit(1);
  }
  path_ = name;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ScratchModel::Input(absl::string_view name, std::initializer_list<int64_t> dims, bool user) {
  absl::StrAppend(&inputs_, "  top: \"", name, "\"\n");
  absl::StrAppend(&manifest_, "inputs { name: \"", name,
                  "\" level: ", user ? "INPUT_LEVEL_USER" : "INPUT_LEVEL_AD");
  for (const int64_t dim : dims) absl::StrAppend(&manifest_, " row_shape: ", dim);
  absl::StrAppend(&manifest_, " }\n");
}

void ScratchModel::Feature(absl::string_view name, int64_t dim, int64_t rows) {
  for (const absl::string_view part : {"ids", "values", "segments"}) {
    absl::StrAppend(&inputs_, "  top: \"", name, ".", part, "\"\n");
  }
  features_.push_back({std::string(name), dim, rows});
}

void ScratchModel::Embedding(std::initializer_list<absl::string_view> features,
                             std::initializer_list<absl::string_view> tops,
                             absl::string_view settings, bool user) {
  const std::string conf = absl::StrCat("block", confs_.size(), ".conf");
  std::string text;
  absl::StrAppend(&graph_, "layer_params {\n  type: \"embedding_layer\" name: \"", conf, "\"\n");
  for (const absl::string_view feature : features) {
    for (const SparseFeature& known : features_) {
      if (known.name != feature) continue;
      absl::StrAppend(&text, "feature_group_config { feature_group: \"", feature,
                      "\" table_name: \"", feature, "_table\" dim: ", known.dim, " }\n",
                      "block_config { embedding_block_config_item { feature_group: \"", feature,
                      "\" ", settings, " } }\n");
    }
    for (const absl::string_view part : {"ids", "values", "segments"}) {
      absl::StrAppend(&graph_, "  bottom: \"", feature, ".", part, "\"\n");
    }
  }
  for (const absl::string_view top : tops) absl::StrAppend(&graph_, "  top: \"", top, "\"\n");
  absl::StrAppend(&graph_, "  embedding_param { embedding_conf_path: \"", conf,
                  "\" level: ", user ? 1 : 0, " }\n}\n");
  confs_.emplace_back(conf, text);
}

void ScratchModel::Layer(absl::string_view type, std::initializer_list<absl::string_view> bottoms,
                         absl::string_view top, absl::string_view param,
                         std::initializer_list<std::vector<int32_t>> weights) {
  const std::string name = absl::StrCat("layer", layers_++);
  absl::StrAppend(&graph_, "layer_params {\n  type: \"", type, "\" name: \"", name, "\"\n");
  for (const absl::string_view bottom : bottoms) {
    absl::StrAppend(&graph_, "  bottom: \"", bottom, "\"\n");
  }
  absl::StrAppend(&graph_, "  top: \"", top, "\"\n  ", param, "\n}\n");
  if (weights.size() == 0) return;
  ulf::LayerWeightsParameter& layer = *weights_.add_layer_weights_params();
  layer.set_name(name);
  size_t index = 0;
  for (const std::vector<int32_t>& shape : weights) {
    ulf::BlobData& blob = *layer.add_blob_datas();
    int64_t elements = 1;
    for (const int32_t dim : shape) {
      blob.add_shape(dim);
      elements *= dim;
    }
    // The last weight of bn and dice is a variance.
    const bool variance = ++index == weights.size() && (type == "bn_layer" || type == "dice_layer");
    for (int64_t i = 0; i < elements; ++i) blob.add_data(variance ? 0.5f + Random() : Random());
  }
}

void ScratchModel::Trees(absl::string_view bottom, absl::string_view top, int64_t features,
                         int64_t trees, int depth) {
  const int64_t splits = (int64_t{1} << depth) - 1, leaves = splits + 1;
  Layer("trees_layer", {bottom}, top, "", {{0, 5}, {0, 2}, {0, 1}, {1}});
  ulf::LayerWeightsParameter& layer =
      *weights_.mutable_layer_weights_params(weights_.layer_weights_params_size() - 1);
  ulf::BlobData &nodes = *layer.mutable_blob_datas(0), &roots = *layer.mutable_blob_datas(1),
                &values = *layer.mutable_blob_datas(2);
  nodes.set_shape(0, static_cast<int32_t>(trees * splits));
  roots.set_shape(0, static_cast<int32_t>(trees));
  values.set_shape(0, static_cast<int32_t>(trees * leaves));
  for (int64_t t = 0; t < trees; ++t) {
    // Level by level; places count all nodes first.
    const int64_t first = t * splits, first_leaf = trees * splits + t * leaves;
    for (int64_t i = 0; i < splits; ++i) {
      const int64_t next = 2 * i + 1,
                    place = next < splits ? first + next : first_leaf + next - splits;
      const auto feature = static_cast<int64_t>(random_() % static_cast<uint64_t>(features));
      for (const int64_t number : {feature, int64_t{0}, place, place + 1, int64_t{0}}) {
        nodes.add_data(static_cast<float>(number));
      }
      nodes.set_data(nodes.data_size() - 4, Random());
    }
    roots.add_data(static_cast<float>(first));
    roots.add_data(0);
    for (int64_t i = 0; i < leaves; ++i) values.add_data(Random());
  }
}

absl::StatusOr<std::unique_ptr<const engine::Model>> ScratchModel::Load(
    const std::string& directory) {
  std::filesystem::create_directories(directory);
  const std::string base = directory + "/";
  WriteFile(base + "graph_ulf.txt",
            absl::StrCat("layer_params {\n  type: \"input_layer\"\n", inputs_, "}\n", graph_));
  WriteFile(base + "weights.pb", weights_.SerializeAsString());
  WriteFile(base + "model.textproto", manifest_);
  for (const auto& [name, text] : confs_) WriteFile(base + name, text);
  for (const SparseFeature& feature : features_) {
    std::string text;
    for (int64_t row = 0; row < feature.rows; ++row) {
      absl::StrAppend(&text, row);
      for (int64_t i = 0; i < feature.dim; ++i) absl::StrAppend(&text, ",", Random());
      text += '\n';
    }
    WriteFile(absl::StrCat(base, feature.name, "_table"), text);
  }
  return engine::Model::Load(
      {.directory = directory, .name = "bench", .version = 1, .backend = backend});
}

MadeUpRequest::MadeUpRequest(const engine::ModelInfo& info, int64_t ads, int64_t ids_per_user,
                             int64_t table_rows, absl::Span<const int64_t> pool) {
  std::mt19937 random(11);
  for (const engine::FeatureInfo& feature : info.features) {
    const bool user = feature.level == Level::kUser;
    const int64_t n = !user ? ads : absl::EndsWith(feature.name, "list") ? ids_per_user : 1;
    std::vector<int64_t>& ids = ids_.emplace_back(n);
    for (int64_t& id : ids) {
      id =
          pool.empty() ? static_cast<int64_t>(random() % table_rows) : pool[random() % pool.size()];
    }
    std::vector<int32_t>& counts =
        user ? counts_.emplace_back(1, static_cast<int32_t>(n)) : counts_.emplace_back(n, 1);
    std::vector<float>& values = values_.emplace_back(n, 1.0f);
    inputs_.push_back({info.inputs[feature.ids].name, {DType::kInt64, {n}, ids.data()}});
    inputs_.push_back({info.inputs[feature.values].name, {DType::kFloat32, {n}, values.data()}});
    inputs_.push_back({info.inputs[feature.segments].name,
                       {DType::kInt32, {static_cast<int64_t>(counts.size())}, counts.data()}});
  }
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const InputInfo& input : info.inputs) {
    if (input.feature >= 0) continue;
    engine::Tensor tensor{input.dtype, {}, nullptr};
    for (const engine::Dim& dim : input.shape.dims()) tensor.dims.push_back(ExtentOf(dim, ads));
    if (input.dtype == DType::kFloat32) {
      std::vector<float>& values = values_.emplace_back(tensor.elements());
      for (float& value : values) value = uniform(random);
      tensor.data = values.data();
    } else {
      tensor.data = counts_.emplace_back(tensor.elements(), 1).data();
    }
    inputs_.push_back({input.name, std::move(tensor)});
  }
}

}  // namespace ulfd::bench
