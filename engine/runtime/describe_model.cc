// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/describe_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/load_reason.h"
#include "engine/graph/graph_loader.h"
#include "proto/embedding.pb.h"

namespace ulfd::engine {
namespace {

namespace pb = ulfd::model::v1;

// Inputs and features, from the graph before lowering.
void DescribeInputs(const Graph& graph, const GraphSpecs& stated, const GraphSpecs& specs,
                    ModelInfo& info) {
  std::vector<int> embedding_readers(graph.values.size(), 0), readers(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.inputs) {
      ++readers[id];
      if (node.type == "embedding_layer") ++embedding_readers[id];
    }
  }
  HashMap<ValueId, int> index;
  for (ValueId id : graph.inputs) {
    index[id] = static_cast<int>(info.inputs.size());
    info.inputs.push_back({.name = graph.values[id].name,
                           .dtype = graph.values[id].dtype,
                           .shape = specs[id].shape,
                           .level = specs[id].level,
                           .stated = stated[id].level != Level::kUnknown,
                           .shape_stated = stated[id].shape.ranked(),
                           .used = readers[id] > 0,
                           .value = id});
  }
  const auto only_embedded = [&](ValueId id) {
    return graph.values[id].kind == Value::Kind::kInput && readers[id] == embedding_readers[id];
  };
  constexpr absl::string_view kIds = ".ids";
  const auto add_feature = [&](ValueId ids, ValueId values, ValueId segments) {
    if (!only_embedded(ids) || !only_embedded(values) || !only_embedded(segments)) return;
    if (info.inputs[index[ids]].feature >= 0) return;
    const std::string& name = graph.values[ids].name;
    const int feature = static_cast<int>(info.features.size());
    info.features.push_back({.name = name.substr(0, name.size() - kIds.size()),
                             .level = specs[segments].level,
                             .ids = index[ids],
                             .values = index[values],
                             .segments = index[segments]});
    for (ValueId id : {ids, values, segments}) info.inputs[index[id]].feature = feature;
    for (ValueId id : {ids, values}) info.inputs[index[id]].free_length = true;
  };
  for (const Node& node : graph.nodes) {
    if (node.type != "embedding_layer") continue;
    for (size_t i = 0; i + 2 < node.inputs.size(); i += 3) {
      add_feature(node.inputs[i], node.inputs[i + 1], node.inputs[i + 2]);
    }
  }
  // What no layer reads is a feature by its names.
  HashMap<absl::string_view, ValueId> inputs;
  for (const ValueId id : graph.inputs) inputs.emplace(graph.values[id].name, id);
  for (const ValueId ids : graph.inputs) {
    absl::string_view name = graph.values[ids].name;
    if (!absl::ConsumeSuffix(&name, kIds)) continue;
    const auto values = inputs.find(absl::StrCat(name, ".values"));
    const auto segments = inputs.find(absl::StrCat(name, ".segments"));
    if (values == inputs.end() || segments == inputs.end()) continue;
    add_feature(ids, values->second, segments->second);
  }
}

// Which inputs hold whole numbers.  REQUIRES: those of the manifest are inputs of the graph.
absl::Status DescribeIntegers(const pb::ModelManifest& manifest, ModelInfo& info) {
  for (const pb::InputConfig& config : manifest.inputs()) {
    if (config.integers_below() == 0 && !config.int64()) continue;
    const auto input =
        std::find_if(info.inputs.begin(), info.inputs.end(),
                     [&](const InputInfo& known) { return known.name == config.name(); });
    if (const DType named = InputDType(config.name()); named != DType::kFloat32) {
      return InvalidArgument(
          "manifest: inputs \"", config.name(), "\": ", config.int64() ? "int64" : "integers_below",
          " is set, but by its name the input is ", Name(named), ", want one of another name");
    }
    input->integers_below = config.integers_below();
  }
  return absl::OkStatus();
}

// What the manifest says of features.
absl::Status DescribeFeatures(const pb::ModelManifest& manifest, ModelInfo& info) {
  HashMap<absl::string_view, const pb::FeatureConfig*> configs;
  for (const pb::FeatureConfig& config : manifest.features()) {
    configs.emplace(config.name(), &config);
  }
  for (FeatureInfo& feature : info.features) {
    const auto config = configs.find(feature.name);
    if (config == configs.end()) continue;
    feature.matrix = config->second->matrix();
    if (config->second->has_padding_id()) feature.padding_id = config->second->padding_id();
    feature.max_ids_per_row = config->second->max_ids_per_row();
    configs.erase(config);
  }
  if (configs.empty()) return absl::OkStatus();
  return InvalidArgument("manifest: features names \"", configs.begin()->first,
                         "\", which is no sparse feature of the graph");
}

// What requests may send whole.
class MatrixDescriber {
 public:
  explicit MatrixDescriber(ModelInfo& info) : info_(info) {
    for (size_t i = 0; i < info.inputs.size(); ++i) {
      taken_.insert(info.inputs[i].name);
      if (info.inputs[i].feature < 0) dense_.emplace(info.inputs[i].name, static_cast<int>(i));
    }
    for (size_t f = 0; f < info.features.size(); ++f) {
      features_.emplace(info.features[f].name, static_cast<int>(f));
    }
  }

  absl::Status Describe(const pb::ModelManifest& manifest) {
    // Names that somebody chose go before those that nobody did.
    for (const pb::InputMatrix& config : manifest.matrices()) RETURN_IF_ERROR(Add(config));
    for (size_t f = 0; f < info_.features.size(); ++f) {
      const FeatureInfo& feature = info_.features[f];
      if (feature.matrix.empty()) continue;
      const std::string what =
          absl::StrCat("manifest: features \"", feature.name, "\": matrix ", Quote(feature.matrix));
      RETURN_IF_ERROR(CheckName(what, feature.matrix));
      const bool is_other = feature.matrix != feature.name && features_.contains(feature.matrix);
      if (is_other || !taken_.insert(feature.matrix).second) {
        return InvalidArgument(what,
                               " is the name of an input, or of another feature or its matrix");
      }
      AddFeature(f, feature.matrix);
    }
    for (size_t f = 0; f < info_.features.size(); ++f) {
      FeatureInfo& feature = info_.features[f];
      if (!feature.matrix.empty() || !taken_.insert(feature.name).second) continue;
      feature.matrix = feature.name;
      AddFeature(f, feature.matrix);
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckName(const std::string& what, const std::string& name) {
    constexpr size_t kMaxBytes = 1024;
    if (!name.empty() && Printable(name, kMaxBytes) == name) return absl::OkStatus();
    return InvalidArgument(what, ", want up to ", kMaxBytes, " printable characters");
  }

  void AddFeature(size_t feature, const std::string& name) {
    info_.matrices.push_back({.name = name, .parts = {{.feature = static_cast<int>(feature)}}});
  }

  absl::Status Add(const pb::InputMatrix& config) {
    const std::string what = absl::StrCat("manifest: matrices ", Quote(config.name()));
    RETURN_IF_ERROR(CheckName(what, config.name()));
    if (!taken_.insert(config.name()).second) {
      return InvalidArgument(what, " is the name of an input or of another matrix");
    }
    constexpr int64_t kMaxColumns = int64_t{1} << 20;
    if (config.columns() < 1 || config.columns() > kMaxColumns) {
      return InvalidArgument(what, ": ", config.columns(), " columns, want 1..", kMaxColumns);
    }
    MatrixInfo matrix{.name = config.name(), .columns = config.columns()};
    for (const pb::MatrixPart& part : config.parts()) {
      RETURN_IF_ERROR(AddPart(part, absl::StrCat(what, ": part ", Quote(part.name())), matrix));
    }
    if (matrix.parts.empty()) return InvalidArgument(what, ": no parts");
    info_.matrices.push_back(std::move(matrix));
    return absl::OkStatus();
  }

  absl::Status AddPart(const pb::MatrixPart& config, const std::string& what, MatrixInfo& matrix) {
    const auto feature = features_.find(config.name()), input = dense_.find(config.name());
    MatrixInfo::Part part;
    if (feature != features_.end()) {
      part.feature = feature->second;
    } else if (input != dense_.end()) {
      part.input = input->second;
    } else {
      return InvalidArgument(what, " is no sparse feature and no dense input of the graph");
    }
    if (!parts_.insert(config.name()).second) return InvalidArgument(what, " is there twice");
    for (const int64_t column : config.columns()) {
      if (column >= 0 && column < matrix.columns) continue;
      return InvalidArgument(what, ": column ", column, ", want 0..", matrix.columns - 1);
    }
    part.columns.assign(config.columns().begin(), config.columns().end());
    const auto found = config.columns().empty() ? matrix.columns : config.columns_size();
    const int64_t width = part.input < 0 ? 0 : info_.inputs[part.input].RowWidth();
    if (width > 0 && found != width) {
      return InvalidArgument(what, ": ", found, " columns, want the ", width,
                             " values that a row of it has");
    }
    matrix.parts.push_back(std::move(part));
    return absl::OkStatus();
  }

  ModelInfo& info_;
  HashMap<std::string, int> features_, dense_;  // Places by name.
  HashSet<std::string> taken_, parts_;
};

// Which tables each feature reads.  One that no block reads may be left out, or come with whatever
// rows.
absl::Status DescribeFeatureTables(const ulf::NetParameter& net, ModelResources& resources,
                                   ModelInfo& info) {
  HashMap<absl::string_view, FeatureInfo*> features;
  for (FeatureInfo& feature : info.features) features.emplace(feature.name, &feature);
  for (const ulf::LayerParameter& layer : net.layer_params()) {
    if (layer.type() != "embedding_layer") continue;
    RETURN_IF_ERROR(LoadScope::Check());
    ASSIGN_OR_RETURN(const blaze::EmbeddingConfig* conf,
                     resources.EmbeddingConf(layer.embedding_param().embedding_conf_path()));
    const HashSet<absl::string_view> bottoms(layer.bottom().begin(), layer.bottom().end());
    HashSet<absl::string_view> in_blocks;
    for (const blaze::EmbeddingBlockConfig& block : conf->block_config()) {
      for (const auto& item : block.embedding_block_config_item()) {
        in_blocks.insert(item.feature_group());
      }
    }
    for (const blaze::EmbeddingFeatureGroupConfig& group : conf->feature_group_config()) {
      const auto feature = features.find(group.feature_group());
      if (feature == features.end() || !in_blocks.contains(group.feature_group()) ||
          !bottoms.contains(absl::StrCat(group.feature_group(), ".ids"))) {
        continue;
      }
      ASSIGN_OR_RETURN(const ModelResources::TableRef table, resources.Table(group.table_name()));
      std::vector<int>& tables = feature->second->tables;
      if (std::find(tables.begin(), tables.end(), table.index) == tables.end()) {
        tables.push_back(table.index);
      }
    }
  }
  for (FeatureInfo& feature : info.features) {
    if (!feature.tables.empty()) continue;
    feature.level = Level::kUnknown;
    for (const int input : {feature.ids, feature.values, feature.segments}) {
      info.inputs[input].used = false;
      info.inputs[input].level = Level::kUnknown;
    }
  }
  return absl::OkStatus();
}

void DescribeLayers(const ulf::NetParameter& net, const Graph& graph, const GraphSpecs& specs,
                    const std::vector<std::vector<Weight>>& weights, ModelInfo& info) {
  for (int i = 0; i < net.layer_params_size(); ++i) {
    const ulf::LayerParameter& param = net.layer_params(i);
    LayerInfo layer{.index = i, .name = param.name(), .type = param.type()};
    layer.bottoms.assign(param.bottom().begin(), param.bottom().end());
    layer.tops.assign(param.top().begin(), param.top().end());
    for (const Weight& weight : weights[i]) {
      layer.weights.push_back({weight.name, {weight.dims.begin(), weight.dims.end()}});
    }
    info.layers.push_back(std::move(layer));
  }
  for (const Node& node : graph.nodes) {
    LayerInfo& layer = info.layers[node.file_index];
    layer.parameters = node.layer->Describe();
    for (ValueId id : node.outputs) {
      layer.top_shapes.push_back(specs[id].shape);
      layer.top_levels.push_back(specs[id].level);
    }
  }
  // input_layer is no node: its tops are the values that nothing computes.
  HashMap<absl::string_view, size_t> given;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (graph.values[id].kind != Value::Kind::kComputed) given.emplace(graph.values[id].name, id);
  }
  for (LayerInfo& layer : info.layers) {
    if (layer.type != "input_layer") continue;
    for (const std::string& top : layer.tops) {
      const auto id = given.find(top);
      if (id == given.end()) continue;
      layer.top_shapes.push_back(specs[id->second].shape);
      layer.top_levels.push_back(specs[id->second].level);
    }
  }
}

void DescribeOutputs(const Graph& graph, const GraphSpecs& specs, ModelInfo& info) {
  for (const NamedValue& output : graph.outputs) {
    info.outputs.push_back({output.name, specs[output.value].shape, specs[output.value].level});
  }
}

}  // namespace

absl::Status DescribeModel(const ModelParts& parts, ModelInfo& info) {
  DescribeInputs(parts.graph, parts.stated, parts.specs, info);
  RETURN_IF_ERROR(WithLoadReason(DescribeIntegers(parts.manifest, info), LoadReason::kManifest));
  RETURN_IF_ERROR(WithLoadReason(DescribeFeatures(parts.manifest, info), LoadReason::kManifest));
  RETURN_IF_ERROR(
      WithLoadReason(MatrixDescriber(info).Describe(parts.manifest), LoadReason::kManifest));
  DescribeLayers(parts.net, parts.graph, parts.specs, parts.weights, info);
  RETURN_IF_ERROR(DescribeFeatureTables(parts.net, parts.resources, info));
  DescribeOutputs(parts.graph, parts.specs, info);
  return absl::OkStatus();
}

}  // namespace ulfd::engine
