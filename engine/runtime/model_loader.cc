// A version directory -> everything that a model consists of.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/model_loader.h"

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/graph/graph_loader.h"
#include "engine/layers/common/packed_weights.h"
#include "engine/layers/registry.h"
#include "engine/layers/types/nhwc.h"
#include "engine/runtime/load_checks.h"
#include "engine/runtime/load_reason.h"
#include "engine/runtime/model_directory.h"
#include "engine/runtime/plan_info.h"
#include "engine/runtime/plan_recipe.h"
#include "engine/runtime/resources.h"
#include "engine/runtime/row_run.h"
#include "engine/runtime/score_tolerance.h"
#include "engine/runtime/shape_plans.h"
#include "engine/weights/digest.h"
#include "proto/embedding.pb.h"

namespace ulfd::engine {

namespace {

namespace pb = ulfd::model::v1;

absl::Status CheckSums(const ModelDirectory& directory) {
  for (const pb::FileSum& sum : directory.manifest.sums()) {
    ASSIGN_OR_RETURN(const std::string path,
                     PathWithin(directory.path, directory.path, sum.path(), "manifest: sums.path"));
    ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(path));
    if (found != sum.sha256()) {
      return absl::DataLossError(
          absl::StrCat(path, ": sha256 is ", found, ", the manifest says ", sum.sha256()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<InputStatement>> Statements(const pb::ModelManifest& manifest,
                                                       const Graph& graph) {
  std::vector<InputStatement> statements;
  HashMap<absl::string_view, ValueId> inputs;
  for (ValueId id : graph.inputs) inputs.emplace(graph.values[id].name, id);
  HashMap<ValueId, const Node*> embedded;  // By one of the layers that read it.
  for (const Node& node : graph.nodes) {
    if (node.type != "embedding_layer") continue;
    for (ValueId id : node.inputs) embedded.emplace(id, &node);
  }
  for (const pb::InputConfig& config : manifest.inputs()) {
    const auto input = inputs.find(config.name());
    InputStatement statement{.input = input == inputs.end() ? kNoValue : input->second};
    if (statement.input == kNoValue) {
      return absl::InvalidArgumentError(absl::StrCat("manifest: inputs names \"", config.name(),
                                                     "\", which is no input of the graph"));
    }
    const auto reader = embedded.find(statement.input);
    if (reader != embedded.end()) {
      return absl::InvalidArgumentError(absl::StrCat("manifest: inputs names \"", config.name(),
                                                     "\", whose level embedding_param.level of ",
                                                     reader->second->Label(), " states"));
    }
    if (config.level() == pb::INPUT_LEVEL_USER) statement.level = Level::kUser;
    if (config.level() == pb::INPUT_LEVEL_AD) statement.level = Level::kAd;
    if (config.row_shape_size() > 0) {
      statement.row_shape.emplace(config.row_shape().begin(), config.row_shape().end());
    }
    statements.push_back(std::move(statement));
  }
  return statements;
}

// Inputs and features, from the graph before lowering.
void DescribeInputs(const Graph& graph, const GraphSpecs& stated, const GraphSpecs& specs,
                    Executable& executable, ModelInfo& info) {
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
                           .used = readers[id] > 0});
    executable.input_values.push_back(id);
  }
  executable.free_length.assign(info.inputs.size(), false);
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
    executable.free_length[index[ids]] = executable.free_length[index[values]] = true;
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
    if (config.integers_below() == 0) continue;
    const auto input =
        std::find_if(info.inputs.begin(), info.inputs.end(),
                     [&](const InputInfo& known) { return known.name == config.name(); });
    if (input->dtype != DType::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat(
          "manifest: inputs \"", config.name(), "\": integers_below is ", config.integers_below(),
          ", but the input is ", Name(input->dtype), ", want float32"));
    }
    input->integers_below = config.integers_below();
  }
  return absl::OkStatus();
}

// What the manifest says of features, and what they are called as matrices.
constexpr size_t kMaxMatrixBytes = 1024;
absl::Status DescribeFeatures(const pb::ModelManifest& manifest, ModelInfo& info) {
  HashMap<absl::string_view, const pb::FeatureConfig*> configs;
  for (const pb::FeatureConfig& config : manifest.features()) {
    configs.emplace(config.name(), &config);
  }
  HashSet<absl::string_view> taken, features;
  for (const InputInfo& input : info.inputs) taken.insert(input.name);
  for (const FeatureInfo& feature : info.features) features.insert(feature.name);
  // Names that somebody chose go before those that nobody did.
  for (FeatureInfo& feature : info.features) {
    const auto config = configs.find(feature.name);
    if (config == configs.end()) continue;
    feature.matrix = config->second->matrix();
    if (config->second->has_padding_id()) feature.padding_id = config->second->padding_id();
    feature.max_ids_per_row = config->second->max_ids_per_row();
    configs.erase(config);
    if (feature.matrix.empty()) continue;
    const std::string what =
        absl::StrCat("manifest: features \"", feature.name, "\": matrix ", Quote(feature.matrix));
    if (Printable(feature.matrix, kMaxMatrixBytes) != feature.matrix) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ", want up to ", kMaxMatrixBytes, " printable characters"));
    }
    const bool is_other = feature.matrix != feature.name && features.contains(feature.matrix);
    if (!is_other && taken.insert(feature.matrix).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is the name of an input, or of another feature or its matrix"));
  }
  if (!configs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("manifest: features names \"",
                                                   configs.begin()->first,
                                                   "\", which is no sparse feature of the graph"));
  }
  for (FeatureInfo& feature : info.features) {
    if (feature.matrix.empty() && taken.insert(feature.name).second) feature.matrix = feature.name;
  }
  return absl::OkStatus();
}

// Which tables each feature reads.  One that no block reads may be left out, or come with whatever
// rows.
absl::Status DescribeFeatureTables(const ulf::NetParameter& net, FileResources& resources,
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

void AddWeightNotices(const WeightFile& weights, ModelInfo& info) {
  const std::vector<std::string> arrays = weights.NonFiniteArrays();
  if (!arrays.empty()) {
    info.notices.push_back(
        absl::StrCat("weights hold NaN or infinity: ", absl::StrJoin(arrays, ", ")));
  }
}

// Every table that the manifest configures must be read by a layer: a misspelt name would silently
// change scores.
absl::Status CheckTableNames(const pb::ModelManifest& manifest, const ModelInfo& info) {
  HashSet<absl::string_view> known;
  for (const TableInfo& table : info.tables) known.insert(table.name);
  for (const pb::TableConfig& config : manifest.tables()) {
    if (!known.contains(config.name())) {
      return absl::InvalidArgumentError(absl::StrCat("manifest: tables names \"", config.name(),
                                                     "\", which no embedding layer reads"));
    }
  }
  return absl::OkStatus();
}

// Brings the kernels over images, of a model of layout NHWC, into the order that layers want.
absl::Status KernelsFromHwio(const ulf::NetParameter& net,
                             absl::Span<const LayerType* const> more_types,
                             std::vector<std::vector<Weight>>& weights,
                             std::vector<std::vector<float>>& kernels) {
  kernels.reserve(net.layer_params_size());  // Their data must stay where it is.
  for (int i = 0; i < net.layer_params_size(); ++i) {
    const ulf::LayerParameter& param = net.layer_params(i);
    if (param.type() == "input_layer" || weights[i].empty()) continue;
    Notices ignored;
    const auto type = FindLayerType(param.type(), ignored, more_types);
    if (!type.ok() || !(*type)->kernel_weight) continue;  // BuildGraph says what is unknown.
    kernels.emplace_back();
    absl::StatusOr<Weight> kernel = KernelFromHwio(weights[i][0], kernels.back());
    RETURN_IF_ERROR(Annotate(kernel.status(), LayerLabel(i, param.name(), param.type())));
    weights[i][0] = *std::move(kernel);
  }
  return absl::OkStatus();
}

// How many bytes of weights the optimiser may copy to change them, so that a loaded model takes at
// most 1.3 times its weights and tables, and 16 MB.
int64_t CopyBudget(int64_t weight_bytes) { return (int64_t{6} << 20) + weight_bytes / 10; }

// Frees the arrays of the file that no layer reads but by matrices of `packed`.  Returns how many
// bytes they had.  `weights`: as matched to layers.
int64_t Release(const std::vector<std::vector<Weight>>& weights, const PackedWeights& packed,
                WeightFile& file) {
  HashMap<const float*, int64_t> readers;
  for (const std::vector<Weight>& layer : weights) {
    for (const Weight& weight : layer) ++readers[weight.data.data()];
  }
  HashSet<const float*> unread;
  for (const auto& [array, count] : readers) {
    if (packed.uses(array) == count) unread.insert(array);
  }
  const int64_t released = file.Release(unread);
#if defined(__GLIBC__)
  // Arrays of a few megabytes come from the heap, where they leave holes.
  constexpr int64_t kWorthTrimming = int64_t{4} << 20;
  if (released >= kWorthTrimming) malloc_trim(0);
#endif
  return released;
}

Backend BackendOf(const LoadOptions& options, const pb::ModelManifest& manifest) {
  if (options.backend.has_value()) return *options.backend;
  switch (manifest.backend()) {
    case pb::BACKEND_AUTO:
      return Backend::kAuto;
    case pb::BACKEND_ONEDNN:
      return Backend::kOneDnn;
    default:
      return Backend::kNative;
  }
}

// The reason stays with the first error found: later steps only see what earlier ones let pass.
template <typename T>
absl::StatusOr<T> Because(LoadReason reason, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return WithLoadReason(std::move(result).status(), reason);
}

bool IsNhwc(const ModelDirectory& directory) {
  return directory.manifest.layout() == pb::LAYOUT_NHWC;
}

// The weights of each layer, of which `model` holds the data.
absl::Status ReadWeights(const ModelDirectory& directory, const ulf::NetParameter& net,
                         absl::Span<const LayerType* const> layer_types, ContentHasher& hasher,
                         LoadedModel& model, std::vector<std::vector<Weight>>& weights) {
  if (directory.weights_path.empty()) {
    model.weights = WeightFile::Empty();
  } else {
    ASSIGN_OR_RETURN(model.weights,
                     Because(LoadReason::kWeights, WeightFile::Read(directory.weights_path)));
    RETURN_IF_ERROR(hasher.AddFile(directory.weights_path));
  }
  model.info.weights_file = directory.weights_path;
  model.info.weights_format = model.weights->format();
  model.info.weight_bytes = model.weights->bytes();
  ASSIGN_OR_RETURN(weights, Because(LoadReason::kWeights, model.weights->Match(net)));
  if (!IsNhwc(directory)) return absl::OkStatus();
  model.kernels = std::make_shared<std::vector<std::vector<float>>>();
  return WithLoadReason(KernelsFromHwio(net, layer_types, weights, *model.kernels),
                        LoadReason::kWeights);
}

// Whether requests may have shapes that nothing states.
bool IsOpen(const ModelInfo& info) {
  return std::any_of(info.inputs.begin(), info.inputs.end(), [&](const InputInfo& input) {
    const bool of_rows =
        input.feature < 0 || &input == &info.inputs[info.features[input.feature].segments];
    return input.used && of_rows && !(input.stated && input.shape_stated);
  });
}

// The cache of users, where the manifest wants one and it can save anything.
void MakeUserCache(int64_t bytes, LoadedModel& model) {
  if (bytes == 0) return;
  const Executable& executable = model.executable;
  const Schedule* const schedule = executable.optimised_schedule != nullptr
                                       ? executable.optimised_schedule.get()
                                       : executable.schedule.get();
  const bool useless = schedule == nullptr || schedule->user_steps.empty();
  if (useless && !IsOpen(model.info)) {
    model.info.notices.push_back(
        absl::StrCat("manifest: user_cache_bytes has no effect: ",
                     schedule == nullptr ? model.info.proof_failure
                                         : std::string("nothing is computed from the user alone")));
    return;
  }
  model.executable.user_cache = std::make_shared<UserCache>(bytes);
  model.info.user_cache_bytes = bytes;
}

// The cache of ads.  Why it would save nothing, or "".
std::string MakeAdCache(int64_t bytes, bool always, LoadedModel& model) {
  // Rows that come from further away take longer than those that were just measured.
  constexpr double kFar = 1.5;
  Executable& executable = model.executable;
  const Schedule* const schedule = executable.optimised_schedule.get();
  if (schedule == nullptr) return "the shapes of its inputs prove no plan";
  if (schedule->item_kept.empty()) return "nothing is computed from an ad alone";
  const absl::StatusOr<ItemTimes> measured = TimeItems(executable, *schedule);
  if (!measured.ok()) return std::string(measured.status().message());
  const ItemTimes times = *measured;
  if (!always && kFar * times.read > times.compute) {
    return absl::StrFormat("an ad's part takes %.0f ns to compute and %.0f ns to find",
                           times.compute, times.read);
  }
  executable.ad_cache = std::make_shared<AdCache>(
      bytes, BytesOfItem(*schedule), always ? 0 : std::min(1.0, kFar * times.read / times.compute));
  model.info.ad_cache_bytes = bytes;
  return "";
}

// What plans of this graph are made from.
std::unique_ptr<PlanRecipe> MakeRecipe(const LoadOptions& options,
                                       const pb::ModelManifest& manifest,
                                       std::vector<InputStatement> statements, Graph graph,
                                       int64_t weight_bytes) {
  auto recipe = std::make_unique<PlanRecipe>();
  recipe->passes = options.passes;
  recipe->cut_items = manifest.ad_cache_bytes() > 0;
  if (recipe->cut_items) {
    // Fewer are not worth a row of sums that is written and read again.
    constexpr int64_t kWorthColumns = 64;
    recipe->passes.item_columns = std::min(recipe->passes.item_columns, kWorthColumns);
  }
  recipe->graph = std::move(graph);
  recipe->statements = std::move(statements);
  recipe->double_layers.assign(manifest.double_layers().begin(), manifest.double_layers().end());
  recipe->optimise = options.optimise;
  recipe->passes.exact |= manifest.exact();
  recipe->passes.copy_bytes = std::min(recipe->passes.copy_bytes, CopyBudget(weight_bytes));
  recipe->backend = BackendOf(options, manifest);
  recipe->precision = options.precision.has_value() ? *options.precision : PrecisionOf(manifest);
  return recipe;
}

// What the caches' hits will save.
void CountHitFlops(const Executable& executable, ModelInfo& info) {
  if (executable.optimised == nullptr) return;
  const PlanInfo plan = DescribePlan(*executable.optimised, executable.plan.get(),
                                     executable.optimised_schedule.get());
  info.user_hit_flops = plan.CostOf(PlanPart::kUser).flops.per_user;
  info.ad_hit_flops = plan.CostOf(PlanPart::kAd).flops.per_ad;
}

// Leaves `recipe` as it is for plans of other shapes, which have no cache of ads.
absl::Status MakeExecutable(const GraphSpecs& specs, const pb::ModelManifest& manifest,
                            PlanRecipe& recipe, LoadedModel& model) {
  ModelInfo& info = model.info;
  Executable& executable = model.executable;
  executable.info = &info;
  executable.token = std::make_shared<int>(0);
  executable.refuse_non_finite = manifest.non_finite() == pb::NON_FINITE_POLICY_REFUSE;
  PlanReport report;
  RETURN_IF_ERROR(MakePlans(recipe, recipe.statements, specs, executable, report));
  if (recipe.cut_items) {
    recipe.cut_items = false;
    recipe.passes.item_columns = INT64_MAX;
    const std::string why_not =
        MakeAdCache(manifest.ad_cache_bytes(), model.options.always_keep_ads, model);
    if (!why_not.empty()) {
      info.notices.push_back(absl::StrCat("manifest: ad_cache_bytes has no effect: ", why_not));
      report = {};
      RETURN_IF_ERROR(MakePlans(recipe, recipe.statements, specs, executable, report));
    }
  }
  info.rewrites = std::move(report.rewrites);
  std::move(report.notices.begin(), report.notices.end(), std::back_inserter(info.notices));
  info.not_optimised = std::move(report.not_optimised);
  info.proof_failure = std::move(report.proof_failure);
  info.row_separable = executable.schedule != nullptr;
  MakeUserCache(manifest.user_cache_bytes(), model);
  if (info.user_cache_bytes > 0 || info.ad_cache_bytes > 0) CountHitFlops(executable, info);
  return absl::OkStatus();
}

void DescribeOutputs(const Graph& graph, const GraphSpecs& specs, ModelInfo& info) {
  for (const NamedValue& output : graph.outputs) {
    info.outputs.push_back({output.name, specs[output.value].shape, specs[output.value].level});
  }
}

GraphOptions GraphOptionsOf(const ModelDirectory& directory,
                            absl::Span<const LayerType* const> layer_types, PackedWeights& packed) {
  const pb::ModelManifest& manifest = directory.manifest;
  return {.outputs = {manifest.outputs().begin(), manifest.outputs().end()},
          .guide_eps = manifest.eps_defaults() == pb::EPS_DEFAULTS_GUIDE,
          .trunc_all = manifest.trunc_all(),
          .nhwc = IsNhwc(directory),
          .layer_types = layer_types,
          .packed = &packed};
}

absl::Status TakeTables(FileResources& resources, const pb::ModelManifest& manifest,
                        LoadedModel& model) {
  ModelInfo& info = model.info;
  info.tables = resources.TableInfos();
  info.fetch_timeout = resources.fetch_timeout();
  RETURN_IF_ERROR(WithLoadReason(CheckTableNames(manifest, info), LoadReason::kManifest));
  for (std::string& notice : resources.TableNotices()) info.notices.push_back(std::move(notice));
  model.executable.tables = resources.TakeTables();
  return absl::OkStatus();
}

// `packed_bytes`: what packing the weights took beyond what it gave back.
void NoteMemory(int64_t packed_bytes, const pb::ModelManifest& manifest, LoadedModel& model) {
  ModelMemory& memory = model.memory;
  memory = MemoryOf(model.executable);
  memory.weights = model.info.weight_bytes + packed_bytes;
  if (model.kernels != nullptr) {
    for (const std::vector<float>& kernel : *model.kernels) {
      memory.weights += static_cast<int64_t>(kernel.size() * sizeof(float));
    }
  }
  memory.cache = model.info.user_cache_bytes;
  memory.ad_cache = model.info.ad_cache_bytes;
  model.memory_limit = manifest.memory_limit_bytes();
}

// What is left for plans of further shapes.
int64_t MemoryLeft(const LoadedModel& model) {
  if (model.memory_limit == 0) return INT64_MAX;
  return model.memory_limit - model.memory.held() - model.memory.workspace;
}

}  // namespace

int64_t BytesOfItem(const Schedule& schedule) {
  int64_t bytes = 0;
  for (const Operand& kept : schedule.item_kept) bytes += kept.row_bytes;
  return bytes;
}

absl::Status AccountMemory(LoadedModel& model) {
  ModelInfo& info = model.info;
  info.tables.clear();
  info.table_bytes = 0;
  for (const auto& table : model.executable.tables) {
    info.tables.push_back(InfoOf(*table));
    info.table_bytes += info.tables.back().bytes + info.tables.back().overlay_bytes;
  }
  model.memory.tables = info.table_bytes;
  info.memory_bytes = model.memory.held();
  return WithLoadReason(CheckMemory(model.memory, model.memory_limit), LoadReason::kMemory);
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const LoadOptions& options,
                                                       const LoadOverrides* overrides) {
  auto model = std::make_unique<LoadedModel>();
  ModelInfo& info = model->info;
  model->options = options;
  ASSIGN_OR_RETURN(ModelDirectory directory, OpenModelDirectory(options.directory));
  if (overrides != nullptr) {
    directory.weights_path = overrides->weights;
  } else {
    RETURN_IF_ERROR(WithLoadReason(CheckSums(directory), LoadReason::kSums));
  }

  ContentHasher hasher;
  hasher.Add(directory.manifest.SerializeAsString());
  ASSIGN_OR_RETURN(const ulf::NetParameter net, Because(LoadReason::kParse, ReadGraph(directory)));
  RETURN_IF_ERROR(hasher.AddFile(directory.graph_path));
  info.graph_file = directory.graph_path;
  std::vector<std::vector<Weight>> weights;
  RETURN_IF_ERROR(ReadWeights(directory, net, options.layer_types, hasher, *model, weights));

  FileResources resources(directory, options.redis, hasher);
  if (overrides != nullptr) resources.UseTables(overrides->tables);
  PackedWeights packed;
  const GraphOptions graph_options = GraphOptionsOf(directory, options.layer_types, packed);
  ASSIGN_OR_RETURN(Graph graph, Because(LoadReason::kGraph, BuildGraph(net, weights, graph_options,
                                                                       resources, info.notices)));
  ASSIGN_OR_RETURN(std::vector<InputStatement> statements,
                   Because(LoadReason::kManifest, Statements(directory.manifest, graph)));
  RETURN_IF_ERROR(AddStatements(options.inputs, graph, statements));
  ASSIGN_OR_RETURN(const double tolerance,
                   Because(LoadReason::kManifest, ToleranceOf(directory.manifest)));

  const GraphSpecs stated = StatedSpecs(graph, statements);
  ASSIGN_OR_RETURN(GraphSpecs specs, InferSpecs(graph, stated, statements));
  DescribeInputs(graph, stated, specs, model->executable, info);
  RETURN_IF_ERROR(
      WithLoadReason(DescribeIntegers(directory.manifest, info), LoadReason::kManifest));
  RETURN_IF_ERROR(
      WithLoadReason(DescribeFeatures(directory.manifest, info), LoadReason::kManifest));
  DescribeLayers(net, graph, specs, weights, info);
  RETURN_IF_ERROR(DescribeFeatureTables(net, resources, info));
  DescribeOutputs(graph, specs, info);

  RETURN_IF_ERROR(TakeTables(resources, directory.manifest, *model));
  if (directory.manifest.exact() && options.precision.has_value() && options.precision->asks()) {
    return absl::InvalidArgumentError("the manifest says exact, so precision cannot be chosen");
  }
  std::unique_ptr<PlanRecipe> recipe = MakeRecipe(
      options, directory.manifest, std::move(statements), std::move(graph), info.weight_bytes);
  RETURN_IF_ERROR(MakeExecutable(specs, directory.manifest, *recipe, *model));

  AddWeightNotices(*model->weights, info);
  info.content_hash = hasher.Hex();
  // A step that took its end for a reason to do without its result must not hide it.
  RETURN_IF_ERROR(LoadScope::Check());
  const int64_t packed_bytes = packed.bytes() - Release(weights, packed, *model->weights);
  NoteMemory(packed_bytes, directory.manifest, *model);
  RETURN_IF_ERROR(AccountMemory(*model));
  if (IsOpen(info)) {
    model->executable.shape_plans =
        std::make_shared<ShapePlans>(std::move(recipe), tolerance, MemoryLeft(*model));
  }
  return model;
}

}  // namespace ulfd::engine
