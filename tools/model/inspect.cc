// ulf inspect: shows what a model directory holds, as the engine sees it.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "tools/cli/commands.h"
#include "tools/cli/print.h"
#include "tools/cli/text_table.h"
#include "tools/model/model_flags.h"
#include "tools/model/model_json.h"

namespace ulfd::tools {
namespace {

using engine::ModelInfo;

constexpr char kDescription[] =
    R"(Loads the model in MODELDIR (a version directory, such as models/din/1, or the highest
version in models/din) with its deltas, as the daemon would, and prints its layers with
shapes, levels, parameters and weights, its inputs and outputs, its tables, the memory it
takes, and what the loader noticed.  In a shape, "ads" stands for the number of ads of a
request and "?" for what only a request tells.  Recordings in warmup/ are not scored, and the
limits of the daemon's configuration not asked: `ulfd --check_config` does that.)";
constexpr size_t kMaxCell = 64;

std::string Summary(const ModelInfo& info) {
  return absl::StrCat(
      "model ", info.name, ", version ", info.version, "\n  graph    ", info.graph_file,
      "\n  weights  ", info.weights_file.empty() ? "none" : info.weights_file, " (",
      info.weights_format, ")\n  content  ", info.content_hash, "\n  epoch    ", info.epoch,
      "\n  memory   ", HumanBytes(info.memory_bytes), ": weights ", HumanBytes(info.weight_bytes),
      ", tables ", HumanBytes(info.table_bytes), "\n  ads are ", info.row_separable ? "" : "not ",
      "proved independent of each other\n");
}

void AppendInterface(const ModelInfo& info, std::string& text) {
  TextTable inputs({"name", "type", "shape", "level", "known from", "read"});
  for (const engine::InputInfo& input : info.inputs) {
    inputs.AddRow({input.name, std::string(engine::Name(input.dtype)), input.shape.ToString(),
                   std::string(engine::Name(input.level)), input.stated ? "the graph" : "a guess",
                   input.used ? "yes" : "no"});
  }
  AppendSection("Inputs", inputs, text);
  TextTable features({"name", "level", "ids of a row", "tables"});
  for (const engine::FeatureInfo& feature : info.features) {
    const auto name = [&](std::string* out, int table) { *out += info.tables[table].name; };
    const int32_t most = feature.max_ids_per_row;
    features.AddRow({feature.name, std::string(engine::Name(feature.level)),
                     most == 0 ? "any number" : absl::StrCat("up to ", most),
                     Clipped(absl::StrJoin(feature.tables, ", ", name), kMaxCell)});
  }
  AppendSection("Sparse features (name.ids, name.values, name.segments)", features, text);
  TextTable outputs({"name", "shape", "level"});
  for (const engine::OutputInfo& output : info.outputs) {
    outputs.AddRow({output.name, output.shape.ToString(), std::string(engine::Name(output.level))});
  }
  AppendSection("Outputs", outputs, text);
  TextTable tables({"name", "rows>", "dim>", "memory>", "mapped>", "rows of deltas>"});
  for (const engine::TableInfo& table : info.tables) {
    tables.AddRow({table.name, WithCommas(table.rows), absl::StrCat(table.dim),
                   HumanBytes(table.bytes), HumanBytes(table.mapped_bytes),
                   WithCommas(table.overlay_rows)});
  }
  AppendSection("Tables", tables, text);
}

// One line per top; a layer's name, type and parameters stand on its first line.
void AppendLayers(const ModelInfo& info, std::string& text) {
  TextTable layers({"#>", "name", "type", "top", "shape", "level", "bottoms", "parameters"});
  TextTable weights({"layer", "weight", "shape"});
  for (const engine::LayerInfo& layer : info.layers) {
    for (size_t i = 0; i < layer.tops.size(); ++i) {
      const bool first = i == 0;
      layers.AddRow({first ? absl::StrCat(layer.index) : "", first ? layer.name : "",
                     first ? layer.type : "", layer.tops[i], layer.top_shapes[i].ToString(),
                     std::string(engine::Name(layer.top_levels[i])),
                     first ? Clipped(absl::StrJoin(layer.bottoms, " "), kMaxCell) : "",
                     first ? Clipped(layer.parameters, kMaxCell) : ""});
    }
    for (const engine::WeightInfo& weight : layer.weights) {
      weights.AddRow(
          {absl::StrCat(layer.index, " ", layer.name), weight.name, engine::ToString(weight.dims)});
    }
  }
  AppendSection("Layers", layers, text);
  AppendSection("Weights", weights, text);
}

std::string ArityText(const engine::Arity& arity) {
  if (arity.min == arity.max) return absl::StrCat(arity.min);
  if (arity.max >= engine::Arity::kAny) return absl::StrCat(arity.min, " or more");
  return absl::StrCat(arity.min, "-", arity.max);
}

void PrintTypes(bool json) {
  if (json) {
    Print(stdout, LayerTypesJson() + "\n");
    return;
  }
  TextTable table({"type", "bottoms", "tops", "weights", "parameters", "meaning"});
  for (const engine::LayerType* type : engine::AllLayerTypes()) {
    table.AddRow({std::string(type->name), ArityText(type->inputs), ArityText(type->outputs),
                  ArityText(type->weights), ParameterFieldName(*type), std::string(type->summary)});
  }
  Print(stdout, table.ToString());
}

}  // namespace

absl::Status RunInspect(Args args) {
  bool json = false, types = false;
  FlagSet flags("ulf inspect (MODELDIR | --types) [--json]", kDescription);
  flags.Add("json", "Prints JSON for programs.", &json);
  flags.Add("types", "Prints the layer types that the engine knows instead of a model.", &types);
  ModelFlags model_flags(flags);
  model_flags.AddTables(flags);
  ASSIGN_OR_RETURN(const std::vector<std::string> positional, flags.Parse(args, 0, 1));
  if (types != positional.empty()) return UsageError("one of MODELDIR and --types is needed");
  RETURN_IF_ERROR(flags.Only(!types, "a model", {"epoch", "redis"}));
  RETURN_IF_ERROR(model_flags.redis().Check());
  if (types) {
    PrintTypes(json);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const auto model, model_flags.LoadModel(positional[0]));
  const ModelInfo& info = model->info();
  if (json) {
    Print(stdout, ModelJson(info) + "\n");
    return absl::OkStatus();
  }
  std::string text = Summary(info);
  AppendInterface(info, text);
  AppendLayers(info, text);
  AppendSection("Notices", info.notices, text);
  Print(stdout, text);
  return absl::OkStatus();
}

}  // namespace ulfd::tools
