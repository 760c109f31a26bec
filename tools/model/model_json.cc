// SPDX-License-Identifier: Apache-2.0
#include "tools/model/model_json.h"

#include "engine/layers/registry.h"
#include "nlohmann/json.hpp"
#include "proto/ulf.pb.h"

namespace ulfd::tools {
namespace {

using Json = nlohmann::ordered_json;

Json ShapeJson(const engine::Shape& shape) {
  if (!shape.ranked()) return nullptr;
  Json dims = Json::array();
  for (const engine::Dim& dim : shape.dims()) {
    if (dim.IsConst()) {
      dims.push_back(dim.value());
    } else {
      dims.push_back(dim.ToString());
    }
  }
  return dims;
}

template <typename T>
std::string NameOf(T value) {
  return std::string(engine::Name(value));
}

Json InputsJson(const engine::ModelInfo& info) {
  Json inputs = Json::array();
  for (const engine::InputInfo& input : info.inputs) {
    Json json = {{"name", input.name},
                 {"dtype", NameOf(input.dtype)},
                 {"shape", ShapeJson(input.shape)},
                 {"level", NameOf(input.level)},
                 {"stated", input.stated},
                 {"used", input.used}};
    if (input.feature >= 0) json["feature"] = info.features[input.feature].name;
    inputs.push_back(std::move(json));
  }
  return inputs;
}

Json FeaturesJson(const engine::ModelInfo& info) {
  Json features = Json::array();
  for (const engine::FeatureInfo& feature : info.features) {
    Json tables = Json::array();
    for (const int table : feature.tables) tables.push_back(info.tables[table].name);
    features.push_back(
        {{"name", feature.name}, {"level", NameOf(feature.level)}, {"tables", std::move(tables)}});
  }
  return features;
}

Json LayersJson(const engine::ModelInfo& info) {
  Json layers = Json::array();
  for (const engine::LayerInfo& layer : info.layers) {
    Json tops = Json::array(), weights = Json::array();
    for (size_t i = 0; i < layer.tops.size(); ++i) {
      tops.push_back({{"name", layer.tops[i]},
                      {"shape", ShapeJson(layer.top_shapes[i])},
                      {"level", NameOf(layer.top_levels[i])}});
    }
    for (const engine::WeightInfo& weight : layer.weights) {
      weights.push_back({{"name", weight.name}, {"shape", weight.dims}});
    }
    layers.push_back({{"index", layer.index},
                      {"name", layer.name},
                      {"type", layer.type},
                      {"parameters", layer.parameters},
                      {"bottoms", layer.bottoms},
                      {"tops", std::move(tops)},
                      {"weights", std::move(weights)}});
  }
  return layers;
}

Json ArityJson(const engine::Arity& arity) {
  Json json = {{"min", arity.min}, {"max", arity.max}};
  if (arity.max >= engine::Arity::kAny) json["max"] = nullptr;
  return json;
}

// Names in model files need not be UTF-8; what is not is replaced rather than thrown about.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ModelJson(const engine::ModelInfo& info) {
  Json outputs = Json::array(), tables = Json::array();
  for (const engine::OutputInfo& output : info.outputs) {
    outputs.push_back({{"name", output.name},
                       {"shape", ShapeJson(output.shape)},
                       {"level", NameOf(output.level)}});
  }
  for (const engine::TableInfo& table : info.tables) {
    tables.push_back({{"name", table.name},
                      {"rows", table.rows},
                      {"dim", table.dim},
                      {"bytes", table.bytes},
                      {"mapped_bytes", table.mapped_bytes},
                      {"overlay_rows", table.overlay_rows}});
  }
  return Dump({{"name", info.name},
               {"version", info.version},
               {"graph_file", info.graph_file},
               {"weights_file", info.weights_file},
               {"weights_format", info.weights_format},
               {"content_hash", info.content_hash},
               {"epoch", info.epoch},
               {"weight_bytes", info.weight_bytes},
               {"table_bytes", info.table_bytes},
               {"memory_bytes", info.memory_bytes},
               {"row_separable", info.row_separable},
               {"inputs", InputsJson(info)},
               {"features", FeaturesJson(info)},
               {"outputs", std::move(outputs)},
               {"tables", std::move(tables)},
               {"layers", LayersJson(info)},
               {"notices", info.notices}});
}

std::string LayerTypesJson() {
  Json types = Json::array();
  for (const engine::LayerType* type : engine::AllLayerTypes()) {
    types.push_back({{"name", std::string(type->name)},
                     {"summary", std::string(type->summary)},
                     {"inputs", ArityJson(type->inputs)},
                     {"outputs", ArityJson(type->outputs)},
                     {"weights", ArityJson(type->weights)},
                     {"parameters", ParameterFieldName(*type)}});
  }
  return Dump(types);
}

std::string ParameterFieldName(const engine::LayerType& type) {
  const auto* field = ulf::LayerParameter::descriptor()->FindFieldByNumber(type.param_field);
  return field == nullptr ? "" : field->name();
}

}  // namespace ulfd::tools
