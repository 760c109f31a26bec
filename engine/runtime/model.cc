// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/table_overlay.h"
#include "engine/kernels/isa.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/model_delta.h"
#include "engine/runtime/model_loader.h"
#include "engine/runtime/shape_plans.h"
#include "engine/runtime/workspace.h"
#include "engine/tensor/flush_denormals.h"

namespace ulfd::engine {

struct Model::Impl {
  std::unique_ptr<LoadedModel> loaded;
  HashMap<std::string, int> inputs, outputs, features, matrices;
};

namespace {

std::array<Arena*, 5> Arenas(WorkspaceState& ws) {
  return {&ws.general, &ws.ads, &ws.user.arena, &ws.user.outputs, &ws.scratch};
}

}  // namespace

Workspace::Workspace() : state_(std::make_unique<WorkspaceState>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

int64_t Workspace::bytes() const {
  int64_t bytes = 0;
  for (const Arena* arena : Arenas(*state_)) bytes += arena->bytes();
  return bytes;
}

bool Workspace::Shrink() {
  bool more = false;
  for (Arena* arena : Arenas(*state_)) more |= arena->Shrink();
  return more;
}

SharedUserPart::SharedUserPart() : state_(std::make_unique<UserPart>()) {}
SharedUserPart::~SharedUserPart() = default;
SharedUserPart::SharedUserPart(SharedUserPart&&) noexcept = default;
SharedUserPart& SharedUserPart::operator=(SharedUserPart&&) noexcept = default;

int64_t SharedUserPart::bytes() const { return state_->arena.bytes() + state_->outputs.bytes(); }

void AddAds(const RunStats& from, RunStats& to) {
  to.embed_ns += from.embed_ns;
  to.ad_ns += from.ad_ns;
  AddEach(from.looked_up_ids, to.looked_up_ids);
  AddEach(from.missing_ids, to.missing_ids);
  to.layers.resize(std::max(to.layers.size(), from.layers.size()));
  for (size_t i = 0; i < from.layers.size(); ++i) {
    to.layers[i].runs += from.layers[i].runs;
    to.layers[i].rows += from.layers[i].rows;
  }
}

Model::Model() : impl_(std::make_unique<Impl>()) {}
Model::~Model() = default;

namespace {

// Name and version for messages, from the path where they are not given.
void SetIdentity(const LoadOptions& options, ModelInfo& info) {
  std::error_code ignored;
  std::filesystem::path path = std::filesystem::absolute(options.directory, ignored);
  if (path.filename().empty()) path = path.parent_path();
  info.name = options.name.empty() ? path.parent_path().filename().string() : options.name;
  info.version = options.version;
  if (info.version == 0 && !absl::SimpleAtoi(path.filename().string(), &info.version)) {
    info.version = 0;
  }
}

std::string Prefix(const ModelInfo& info) {
  const std::string version = info.version == 0 ? "" : absl::StrCat(" v", info.version);
  return absl::StrCat("model \"", info.name, "\"", version);
}

absl::Status WithPrefix(const ModelInfo& info, const absl::Status& status) {
  return Annotate(status, Prefix(info));
}

template <typename Items>
HashMap<std::string, int> IndexByName(const Items& items) {
  HashMap<std::string, int> index;
  for (size_t i = 0; i < items.size(); ++i) index.emplace(items[i].name, static_cast<int>(i));
  return index;
}

int Find(const HashMap<std::string, int>& index, absl::string_view name) {
  const auto it = index.find(name);
  return it == index.end() ? -1 : it->second;
}

// The tensor of that value among those that a run kept; nullptr: a later tensor took its name.
const Tensor* FindTensor(const Graph& graph, const RunResult& result, ValueId value) {
  for (size_t i = 0; i < graph.tensors.size() && i < result.tensors.size(); ++i) {
    if (graph.tensors[i].value == value) return &result.tensors[i].tensor;
  }
  return nullptr;
}

// Whether a table of the feature refuses ids that it lacks.
bool HasStrictTable(const FeatureInfo& feature,
                    const std::vector<std::shared_ptr<const EmbeddingTable>>& tables) {
  return std::any_of(feature.tables.begin(), feature.tables.end(), [&](int table) {
    return tables[table]->missing_keys() == MissingKeys::kError;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(const LoadOptions& options) {
  RETURN_IF_ERROR(IsaOfEnvironment().status());
  absl::StatusOr<std::unique_ptr<LoadedModel>> loaded =
      WithinMemory([&options] { return LoadModel(options); });
  if (!loaded.ok()) {
    ModelInfo identity;
    SetIdentity(options, identity);
    return WithPrefix(identity, Clip(loaded.status(), kMaxKeptErrorBytes));
  }
  SetIdentity(options, (*loaded)->info);
  ClipNotices((*loaded)->info.notices);
  return Of(*std::move(loaded));
}

std::unique_ptr<const Model> Model::Of(std::unique_ptr<LoadedModel> loaded) {
  std::unique_ptr<Model> model(new Model());
  model->impl_->loaded = std::move(loaded);
  const ModelInfo& info = model->info();
  model->impl_->inputs = IndexByName(info.inputs);
  model->impl_->outputs = IndexByName(info.outputs);
  model->impl_->features = IndexByName(info.features);
  model->impl_->matrices = IndexByName(info.matrices);
  return model;
}

DeltasResult Model::WithDeltas(absl::Span<const DeltaSource> deltas) const {
  DeltasResult result;
  std::unique_ptr<LoadedModel> loaded;
  const absl::Status memory =
      WithinMemory([&] { loaded = ApplyDeltas(*impl_->loaded, deltas, result.statuses); });
  if (!memory.ok()) result.statuses = {memory};
  for (absl::Status& status : result.statuses) {
    if (!status.ok()) status = WithPrefix(info(), Clip(status, kMaxKeptErrorBytes));
  }
  if (memory.ok() && loaded != nullptr) result.model = Of(std::move(loaded));
  return result;
}

const std::vector<std::shared_ptr<const EmbeddingTable>>& Model::tables() const {
  return impl_->loaded->executable.tables;
}

std::unique_ptr<const Model> Model::WithFolded(const EmbeddingTable& folded,
                                               std::shared_ptr<const TableRows> rows) const {
  std::unique_ptr<LoadedModel> loaded = ReplaceFolded(*impl_->loaded, folded, std::move(rows));
  return loaded == nullptr ? nullptr : Of(std::move(loaded));
}

std::vector<std::pair<const void*, int64_t>> Model::MemoryPieces() const {
  const LoadedModel& loaded = *impl_->loaded;
  std::vector<std::pair<const void*, int64_t>> pieces;
  for (const auto& table : loaded.executable.tables) {
    pieces.emplace_back(table->base().get(), table->bytes());
    if (table->overlay() != nullptr) {
      pieces.emplace_back(table->overlay(), table->overlay()->bytes());
    }
  }
  pieces.emplace_back(loaded.executable.user_cache.get(), loaded.memory.cache);
  pieces.emplace_back(loaded.executable.ad_cache.get(), loaded.memory.ad_cache);
  if (loaded.executable.shape_plans != nullptr) {
    for (const auto& plan : loaded.executable.shape_plans->Serving()) {
      pieces.emplace_back(plan->executable.plan.get(), plan->bytes);
    }
  }
  pieces.emplace_back(
      loaded.executable.token.get(),
      loaded.memory.held() - loaded.memory.tables - loaded.memory.cache - loaded.memory.ad_cache);
  return pieces;
}

const ModelInfo& Model::info() const { return impl_->loaded->info; }
PlanInfo Model::WrittenPlan() const {
  const Executable& executable = impl_->loaded->executable;
  return DescribePlan(*executable.plan, nullptr, executable.schedule.get());
}
std::optional<PlanInfo> Model::OptimisedPlan() const {
  const Executable& executable = impl_->loaded->executable;
  if (executable.optimised == nullptr) return std::nullopt;
  return DescribePlan(*executable.optimised, executable.plan.get(),
                      executable.optimised_schedule.get());
}

bool Model::WantsPlans() const {
  const auto& plans = impl_->loaded->executable.shape_plans;
  return plans != nullptr && plans->wanted();
}

std::vector<ShapePlanInfo> Model::MakePlans(const RunOptions& run, int64_t max_bytes) const {
  const Executable& executable = impl_->loaded->executable;
  if (executable.shape_plans == nullptr) return {};
  // Where rows stay late, both ways do without.
  const auto fetch = [this](absl::Span<const NamedTensor> inputs, FetchedRows& rows) {
    FetchNow(inputs, {}, rows).IgnoreError();
  };
  return executable.shape_plans->Make(executable, fetch, run, max_bytes);
}

void Model::WantPlansOf(const Model& before, const RunOptions& run, Workspace& workspace,
                        RunResult& result) const {
  const auto& plans = before.impl_->loaded->executable.shape_plans;
  if (plans == nullptr) return;
  for (const auto& shown : plans->Shown()) {
    // What the other one understood need not be a request of this one.
    Run(shown->inputs, run, workspace, result).IgnoreError();
  }
}

std::vector<ShapePlanInfo> Model::shape_plans() const {
  const auto& plans = impl_->loaded->executable.shape_plans;
  return plans == nullptr ? std::vector<ShapePlanInfo>() : plans->Describe();
}

int64_t Model::memory_bytes() const {
  const auto& plans = impl_->loaded->executable.shape_plans;
  return info().memory_bytes + (plans == nullptr ? 0 : plans->bytes());
}

bool Model::row_separable() const {
  const auto& plans = impl_->loaded->executable.shape_plans;
  return info().row_separable || (plans != nullptr && !plans->Serving().empty());
}

bool Model::joins_users() const {
  const auto joins = [](const Executable& executable) {
    return executable.schedule != nullptr && executable.schedule->one_user_only.empty();
  };
  const Executable& executable = impl_->loaded->executable;
  if (joins(executable)) return true;
  if (executable.shape_plans == nullptr) return false;
  const auto plans = executable.shape_plans->Serving();
  return std::any_of(plans.begin(), plans.end(),
                     [&](const auto& plan) { return joins(plan->executable); });
}

absl::string_view Name(ShapePlanInfo::State state) {
  static constexpr absl::string_view kNames[] = {"wanted", "serving", "refused"};
  return kNames[static_cast<size_t>(state)];
}

std::string ShapesText(absl::Span<const InputShape> inputs) {
  return absl::StrJoin(inputs, ", ", [](std::string* text, const InputShape& input) {
    absl::StrAppend(text, input.name, ": ", Name(input.level), " [",
                    absl::StrJoin(input.row_shape, ", "), "]");
  });
}

std::vector<Cancellation> Model::Cancellations(const RunResult* observed) const {
  const Plan& plan = *impl_->loaded->executable.plan;
  ObservedMagnitudes magnitudes;
  if (observed != nullptr) {
    magnitudes = [&plan, observed](int value, int64_t channels) {
      std::vector<double> sums(static_cast<size_t>(channels), 0.0);
      const Tensor* tensor = FindTensor(plan.graph, *observed, value);
      if (tensor == nullptr || tensor->dtype != DType::kFloat32 || channels == 0 ||
          tensor->elements() == 0 || tensor->elements() % channels != 0) {
        return std::vector<double>();
      }
      const int64_t rows = tensor->elements() / channels;
      for (int64_t i = 0; i < tensor->elements(); ++i) {
        sums[i % channels] += std::abs(double{tensor->f32()[i]}) / static_cast<double>(rows);
      }
      return sums;
    };
  }
  return FindCancellation(plan.graph, plan.specs, magnitudes);
}
CacheStats Model::user_cache() const {
  const UserCache* const cache = impl_->loaded->executable.user_cache.get();
  return cache == nullptr ? CacheStats() : cache->stats();
}
AdCacheStats Model::ad_cache() const {
  const AdCache* const cache = impl_->loaded->executable.ad_cache.get();
  return cache == nullptr ? AdCacheStats() : cache->stats();
}
int Model::FindInput(absl::string_view name) const { return Find(impl_->inputs, name); }
int Model::FindMatrix(absl::string_view name) const { return Find(impl_->matrices, name); }
int Model::FindOutput(absl::string_view name) const { return Find(impl_->outputs, name); }
int Model::FindFeature(absl::string_view name) const { return Find(impl_->features, name); }

std::vector<int64_t> Model::SampleIds(int feature, int64_t count, uint64_t seed) const {
  std::vector<int64_t> ids;
  const std::vector<int>& tables = info().features[feature].tables;
  if (tables.empty()) return ids;
  const auto& all = impl_->loaded->executable.tables;
  // Enough tries for tables of which half the slots are unused and half the ids are shared.
  for (int64_t i = 0; i < 8 * count && static_cast<int64_t>(ids.size()) < count; ++i) {
    const std::optional<int64_t> id = all[tables[0]]->Sample(seed + static_cast<uint64_t>(i));
    const bool in_all = id.has_value() && std::all_of(tables.begin(), tables.end(), [&](int table) {
                          return all[table]->Find(*id) != nullptr;
                        });
    if (in_all) ids.push_back(*id);
  }
  return ids;
}

void Model::ForEachLookup(
    absl::Span<const NamedTensor> inputs,
    absl::FunctionRef<void(int table, absl::Span<const int64_t> ids)> lookup) const {
  for (const NamedTensor& input : inputs) {
    const int index = FindInput(input.name);
    const int feature = index < 0 ? -1 : info().inputs[index].feature;
    if (feature < 0 || info().features[feature].ids != index) continue;
    if (input.tensor.dtype != DType::kInt64) continue;
    const absl::Span<const int64_t> ids(input.tensor.i64(),
                                        static_cast<size_t>(input.tensor.elements()));
    for (const int table : info().features[feature].tables) lookup(table, ids);
  }
}

void Model::ForEachMissingId(absl::Span<const NamedTensor> inputs, const FetchedRows* fetched,
                             absl::FunctionRef<void(size_t table, int64_t id)> missing) const {
  ForEachLookup(inputs, [&](int t, absl::Span<const int64_t> ids) {
    const EmbeddingTable& table = *tables()[t];
    const RowSet* const rows = table.tier() == nullptr ? nullptr : &fetched->tables[t];
    for (const int64_t id : ids) {
      const void* const row = rows == nullptr ? table.Find(id) : rows->Find(id);
      if (row == nullptr) missing(static_cast<size_t>(t), id);
    }
  });
}

absl::Status Model::FindRows(absl::Span<const NamedTensor> inputs, int64_t max_bytes,
                             FetchedRows& rows) const {
  const auto& tables = this->tables();
  rows.tables.resize(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t]->tier() != nullptr) rows.tables[t].Reset(tables[t]->tier()->table().row_bytes());
  }
  ForEachLookup(inputs, [&](int t, absl::Span<const int64_t> ids) {
    if (tables[t]->tier() != nullptr) rows.tables[t].AddIds(ids);
  });
  int64_t bytes = 0;
  for (const RowSet& of_table : rows.tables) {
    bytes += static_cast<int64_t>(of_table.reserve_bytes());
  }
  if (max_bytes > 0 && bytes > max_bytes) {
    return ResourceExhausted("the rows of its ids have ", bytes, " bytes, want at most ",
                             max_bytes);
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    if (rows.tables[t].size() == 0) continue;
    rows.tables[t].Reserve();
    if (tables[t]->overlay() != nullptr) tables[t]->overlay()->Fill(rows.tables[t]);
    tables[t]->tier()->Find(rows.tables[t]);
  }
  return absl::OkStatus();
}

absl::Status Model::FetchRows(TimePoint deadline, FetchedRows& rows) const {
  std::vector<RowTier::Fetch> fetches;
  for (size_t t = 0; t < rows.tables.size(); ++t) {
    if (rows.tables[t].CountLate() == 0) continue;
    const EmbeddingTable& table = *tables()[t];
    fetches.push_back({.tier = table.tier(), .rows = &rows.tables[t], .name = &table.name()});
  }
  if (fetches.empty()) return absl::OkStatus();
  const absl::Status status = RowTier::FetchAll(fetches, deadline);
  return status.ok() ? status : WithPrefix(info(), status);
}

absl::Status Model::CheckRows(const FetchedRows& rows) const {
  for (size_t t = 0; t < rows.tables.size(); ++t) {
    const EmbeddingTable& table = *tables()[t];
    if (table.missing_keys() != MissingKeys::kError) continue;
    const int64_t late = rows.tables[t].CountLate();
    if (late == 0) continue;
    return WithPrefix(info(), Unavailable("the rows of ", late,
                                          " ids did not come in time from the store "
                                          "of table \"",
                                          table.name(), "\", which must have them all"));
  }
  return absl::OkStatus();
}

std::vector<std::optional<RowTierStats>> Model::TierStats() const {
  std::vector<std::optional<RowTierStats>> stats;
  for (const auto& table : tables()) {
    stats.emplace_back();
    if (table->tier() != nullptr) stats.back() = table->tier()->stats();
  }
  return stats;
}

// For callers that can wait: no request has a deadline here.
absl::Status Model::FetchNow(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                             FetchedRows& rows) const {
  constexpr std::chrono::seconds kPatience(10);
  absl::Status status = FindRows(inputs, options.max_memory_bytes, rows);
  if (!status.ok()) return WithPrefix(info(), status);
  status = FetchRows(std::chrono::steady_clock::now() + kPatience, rows);
  return status.ok() ? CheckRows(rows) : status;
}

absl::Status Model::SetInputs(absl::Span<const NamedTensor> inputs, Workspace& workspace,
                              Request& request) const {
  std::vector<int>& order = workspace.state_->order;
  if (order.size() < inputs.size()) order.resize(inputs.size(), 0);
  const std::vector<InputInfo>& known = info().inputs;
  request.given.assign(known.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const NamedTensor& input = inputs[i];
    // Callers send their inputs in the same order again and again.
    int index = order[i];
    if (index >= static_cast<int>(known.size()) || known[index].name != input.name) {
      index = FindInput(input.name);
      if (index < 0) {
        return InvalidArgument("input \"", input.name, "\" is not an input of the graph");
      }
      order[i] = index;
    }
    if (request.given[index] != nullptr) {
      return InvalidArgument("input \"", input.name, "\" is given twice");
    }
    if (const absl::Status possible = CheckDims(input.tensor.dims); !possible.ok()) {
      return Annotate(possible, "input \"", input.name, "\"");
    }
    if (input.tensor.dtype != known[index].dtype) {
      return InvalidArgument("input \"", input.name, "\" is ", Name(input.tensor.dtype), ", want ",
                             Name(known[index].dtype));
    }
    request.given[index] = &input.tensor;
  }
  return absl::OkStatus();
}

absl::Status Model::Run(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                        Workspace& workspace, RunResult& result) const {
  if (info().fetch_timeout.count() > 0 && options.fetched == nullptr) {
    FetchedRows rows;
    RETURN_IF_ERROR(FetchNow(inputs, options, rows));
    RunOptions with_rows = options;
    with_rows.fetched = &rows;
    return Run(inputs, with_rows, workspace, result);
  }
  const FlushDenormals flush;
  WorkspaceState& ws = *workspace.state_;
  absl::Status status = SetInputs(inputs, workspace, ws.user.request);
  if (status.ok()) status = Execute(impl_->loaded->executable, options, ws, result);
  return status.ok() ? status : WithPrefix(info(), status);
}

absl::Status Model::RunUserPart(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                                Workspace& workspace, SharedUserPart& part,
                                RunResult& result) const {
  part.ads_ = 0;
  if (info().fetch_timeout.count() > 0 && options.fetched == nullptr) {
    return Run(inputs, options, workspace, result);
  }
  const FlushDenormals flush;
  bool cut = false;
  absl::Status status = SetInputs(inputs, workspace, part.state_->request);
  if (status.ok()) {
    status = ExecuteUserPart(impl_->loaded->executable, options, *part.state_, *workspace.state_,
                             result, cut);
  }
  if (!status.ok()) return WithPrefix(info(), status);
  if (!cut) return Run(inputs, options, workspace, result);
  part.ads_ = part.state_->ads;
  return absl::OkStatus();
}

absl::Status Model::RunAds(const SharedUserPart& part, const RunOptions& options, int64_t begin,
                           int64_t end, Workspace& workspace, absl::Span<const Tensor> outputs,
                           RunStats& stats) const {
  if (begin < 0 || begin > end || end > part.ads()) {
    return WithPrefix(info(),
                      InvalidArgument("ads [", begin, ", ", end, ") of a request of ", part.ads()));
  }
  if (begin == end) return absl::OkStatus();
  const FlushDenormals flush;
  const absl::Status status =
      ExecuteAds(*part.state_, options, begin, end, *workspace.state_, outputs, stats);
  return status.ok() ? status : WithPrefix(info(), status);
}

absl::Status Model::RunWarmup(int64_t ads, const RunOptions& options, Workspace& workspace,
                              RunResult& result) const {
  RunOptions made_up = options;
  made_up.made_up = true;
  result.outputs.clear();
  std::vector<NamedTensor> inputs;
  for (const InputInfo& input : info().inputs) {
    if (!input.used) continue;
    Tensor tensor{.dtype = input.dtype};
    if (input.feature >= 0) {
      const FeatureInfo& feature = info().features[input.feature];
      if (input.name != info().inputs[feature.ids].name) continue;  // Defaults do for the others.
      const int64_t rows = feature.level == Level::kUser ? 1 : ads;
      tensor.dims = {rows};
      // The made-up id 0 is an error to a table that must have every id: no ids at all, then.
      if (HasStrictTable(feature, impl_->loaded->executable.tables)) {
        tensor.dims = {0};
        inputs.push_back(
            {info().inputs[feature.segments].name, {.dtype = DType::kInt32, .dims = {rows}}});
      }
    } else {
      if (!input.shape.ranked()) return absl::OkStatus();
      for (Dim d : input.shape.dims()) {
        if (d.IsUnknown()) return absl::OkStatus();
        tensor.dims.push_back(Resolve(d, ads));
      }
    }
    inputs.push_back({input.name, tensor});
  }
  // Nobody writes to inputs: all of them may be the same zeros.
  size_t most = 0;
  for (const NamedTensor& input : inputs) most = std::max(most, input.tensor.bytes());
  std::vector<char> zeros(most, '\0');
  for (NamedTensor& input : inputs) input.tensor.data = zeros.data();
  absl::Status status = Run(inputs, made_up, workspace, result);
  const bool guessed =
      std::any_of(info().inputs.begin(), info().inputs.end(), [](const InputInfo& input) {
        return input.used && input.feature < 0 && input.level == Level::kAd && !input.stated;
      });
  if (!absl::IsInvalidArgument(status) || !guessed) return status;
  result.outputs.clear();
  return absl::OkStatus();
}

}  // namespace ulfd::engine
