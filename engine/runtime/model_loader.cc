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
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/load_reason.h"
#include "engine/directory/model_directory.h"
#include "engine/graph/graph_loader.h"
#include "engine/layers/common/packed_weights.h"
#include "engine/layers/registry.h"
#include "engine/layers/types/nhwc.h"
#include "engine/plan/plan_info.h"
#include "engine/runtime/describe_model.h"
#include "engine/runtime/load_checks.h"
#include "engine/runtime/plan_recipe.h"
#include "engine/runtime/resources.h"
#include "engine/runtime/row_run.h"
#include "engine/runtime/score_tolerance.h"
#include "engine/runtime/shape_plans.h"
#include "engine/weights/digest.h"

namespace ulfd::engine {

namespace {

namespace pb = ulfd::model::v1;

absl::Status CheckSums(const ModelDirectory& directory) {
  for (const pb::FileSum& sum : directory.manifest.sums()) {
    ASSIGN_OR_RETURN(const std::string path,
                     PathWithin(directory.path, directory.path, sum.path(), "manifest: sums.path"));
    ASSIGN_OR_RETURN(const std::string found, Sha256OfFile(path));
    if (found != sum.sha256()) {
      return DataLoss(path, ": sha256 is ", found, ", the manifest says ", sum.sha256());
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
      return InvalidArgument("manifest: inputs names \"", config.name(),
                             "\", which is no input of the graph");
    }
    const auto reader = embedded.find(statement.input);
    if (reader != embedded.end()) {
      return InvalidArgument("manifest: inputs names \"", config.name(),
                             "\", whose level embedding_param.level of ", reader->second->Label(),
                             " states");
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
      return InvalidArgument("manifest: tables names \"", config.name(),
                             "\", which no embedding layer reads");
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
    ASSIGN_OR_RETURN(weights[i][0], Annotate(KernelFromHwio(weights[i][0], kernels.back()),
                                             LayerLabel(i, param.name(), param.type())));
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
    ASSIGN_OR_RETURN(model.weights, WithLoadReason(WeightFile::Read(directory.weights_path),
                                                   LoadReason::kWeights));
    RETURN_IF_ERROR(hasher.AddFile(directory.weights_path));
  }
  model.info.weights_file = directory.weights_path;
  model.info.weights_format = model.weights->format();
  model.info.weight_bytes = model.weights->bytes();
  ASSIGN_OR_RETURN(weights, WithLoadReason(model.weights->Match(net), LoadReason::kWeights));
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

GraphOptions GraphOptionsOf(const ModelDirectory& directory,
                            absl::Span<const LayerType* const> layer_types, PackedWeights& packed) {
  const pb::ModelManifest& manifest = directory.manifest;
  std::vector<std::string> int64_inputs;
  for (const pb::InputConfig& input : manifest.inputs()) {
    if (input.int64()) int64_inputs.push_back(input.name());
  }
  return {.outputs = {manifest.outputs().begin(), manifest.outputs().end()},
          .guide_eps = manifest.eps_defaults() == pb::EPS_DEFAULTS_GUIDE,
          .trunc_all = manifest.trunc_all(),
          .int64_inputs = std::move(int64_inputs),
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
  ASSIGN_OR_RETURN(const ulf::NetParameter net,
                   WithLoadReason(ReadGraph(directory), LoadReason::kParse));
  RETURN_IF_ERROR(hasher.AddFile(directory.graph_path));
  info.graph_file = directory.graph_path;
  std::vector<std::vector<Weight>> weights;
  RETURN_IF_ERROR(ReadWeights(directory, net, options.layer_types, hasher, *model, weights));

  FileResources resources(directory, options.redis, hasher);
  if (overrides != nullptr) resources.UseTables(overrides->tables);
  PackedWeights packed;
  const GraphOptions graph_options = GraphOptionsOf(directory, options.layer_types, packed);
  ASSIGN_OR_RETURN(Graph graph,
                   WithLoadReason(BuildGraph(net, weights, graph_options, resources, info.notices),
                                  LoadReason::kGraph));
  ASSIGN_OR_RETURN(std::vector<InputStatement> statements,
                   WithLoadReason(Statements(directory.manifest, graph), LoadReason::kManifest));
  RETURN_IF_ERROR(AddStatements(options.inputs, graph, statements));
  ASSIGN_OR_RETURN(const double tolerance,
                   WithLoadReason(ToleranceOf(directory.manifest), LoadReason::kManifest));

  const GraphSpecs stated = StatedSpecs(graph, statements);
  ASSIGN_OR_RETURN(GraphSpecs specs, InferSpecs(graph, stated, statements));
  RETURN_IF_ERROR(
      DescribeModel({net, directory.manifest, graph, stated, specs, weights, resources}, info));

  RETURN_IF_ERROR(TakeTables(resources, directory.manifest, *model));
  if (directory.manifest.exact() && options.precision.has_value() && options.precision->asks()) {
    return InvalidArgument("the manifest says exact, so precision cannot be chosen");
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
