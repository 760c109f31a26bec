// A loaded model: the interface of the engine to the daemon and the tools.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/loader.h"
#include "engine/runtime/workspace.h"
#include "engine/status_macros.h"
#include "engine/weights/file.h"

namespace ulfd::engine {

struct Model::Impl {
  std::unique_ptr<LoadedModel> loaded;
  absl::flat_hash_map<std::string, int> inputs, outputs, features;
};

Workspace::Workspace() : state_(std::make_unique<WorkspaceState>()) {}
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

int64_t Workspace::bytes() const {
  return state_->user.bytes() + state_->ads.bytes() + state_->scratch.bytes() +
         state_->outputs.bytes();
}

void Workspace::Trim(int64_t keep_bytes) {
  for (Arena* arena : {&state_->ads, &state_->user, &state_->scratch, &state_->outputs}) {
    if (bytes() > keep_bytes) arena->Release();
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
  return absl::StrCat("model \"", info.name, "\" v", info.version);
}

absl::Status WithPrefix(const ModelInfo& info, const absl::Status& status) {
  return Annotate(status, Prefix(info));
}

template <typename Items>
absl::flat_hash_map<std::string, int> IndexByName(const Items& items) {
  absl::flat_hash_map<std::string, int> index;
  for (size_t i = 0; i < items.size(); ++i) index.emplace(items[i].name, static_cast<int>(i));
  return index;
}

int Find(const absl::flat_hash_map<std::string, int>& index, absl::string_view name) {
  const auto it = index.find(name);
  return it == index.end() ? -1 : it->second;
}

// Whether a table of the feature refuses ids that it lacks.
bool HasStrictTable(const FeatureInfo& feature,
                    const std::vector<std::unique_ptr<const EmbeddingTable>>& tables) {
  return std::any_of(feature.tables.begin(), feature.tables.end(), [&](int table) {
    return tables[table]->missing_keys() == MissingKeys::kError;
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Model>> Model::Load(const LoadOptions& options) {
  absl::StatusOr<std::unique_ptr<LoadedModel>> loaded = LoadModel(options);
  if (!loaded.ok()) {
    ModelInfo identity;
    SetIdentity(options, identity);
    return WithPrefix(identity, loaded.status());
  }
  std::unique_ptr<Model> model(new Model());
  SetIdentity(options, (*loaded)->info);
  model->impl_->loaded = *std::move(loaded);
  const ModelInfo& info = model->info();
  model->impl_->inputs = IndexByName(info.inputs);
  model->impl_->outputs = IndexByName(info.outputs);
  model->impl_->features = IndexByName(info.features);
  return std::unique_ptr<const Model>(std::move(model));
}

const ModelInfo& Model::info() const { return impl_->loaded->info; }
PlanInfo Model::WrittenPlan() const {
  return DescribePlan(*impl_->loaded->executable.plan, nullptr);
}
std::optional<PlanInfo> Model::OptimisedPlan() const {
  const Executable& executable = impl_->loaded->executable;
  if (executable.optimised == nullptr) return std::nullopt;
  return DescribePlan(*executable.optimised, executable.plan.get());
}
int Model::FindInput(absl::string_view name) const { return Find(impl_->inputs, name); }
int Model::FindOutput(absl::string_view name) const { return Find(impl_->outputs, name); }
int Model::FindFeature(absl::string_view name) const { return Find(impl_->features, name); }

absl::Status Model::Run(absl::Span<const NamedTensor> inputs, const RunOptions& options,
                        Workspace& workspace, RunResult& result) const {
  WorkspaceState& ws = *workspace.state_;
  ws.given.assign(info().inputs.size(), nullptr);
  for (const NamedTensor& input : inputs) {
    const int index = FindInput(input.name);
    absl::Status status;
    if (index < 0) {
      status = absl::InvalidArgumentError(
          absl::StrCat("input \"", input.name, "\" is not an input of the graph"));
    } else if (ws.given[index] != nullptr) {
      status =
          absl::InvalidArgumentError(absl::StrCat("input \"", input.name, "\" is given twice"));
    } else if (input.tensor.dtype != info().inputs[index].dtype) {
      status = absl::InvalidArgumentError(absl::StrCat("input \"", input.name, "\" is ",
                                                       Name(input.tensor.dtype), ", want ",
                                                       Name(info().inputs[index].dtype)));
    }
    if (!status.ok()) return WithPrefix(info(), status);
    ws.given[index] = &input.tensor;
  }
  const absl::Status status = Execute(impl_->loaded->executable, options, ws, result);
  return status.ok() ? status : WithPrefix(info(), status);
}

absl::Status Model::RunWarmup(int64_t ads, Workspace& workspace, RunResult& result) const {
  std::vector<std::vector<char>> buffers;
  std::vector<NamedTensor> inputs;
  buffers.reserve(2 * info().inputs.size());
  for (const InputInfo& input : info().inputs) {
    if (!input.used) continue;
    Tensor tensor{.dtype = input.dtype};
    if (input.feature >= 0) {
      const FeatureInfo& feature = info().features[input.feature];
      if (input.name != info().inputs[feature.ids].name) continue;  // Defaults do for the others.
      const int64_t rows = feature.level == Level::kUser ? 1 : ads;
      tensor.dims = {rows};
      // The made-up id 0 is an error to a table that must have every id: no ids at all, then.
      if (HasStrictTable(feature, impl_->loaded->tables)) {
        tensor.dims = {0};
        buffers.emplace_back(rows * sizeof(int32_t), '\0');
        inputs.push_back({info().inputs[feature.segments].name,
                          {.dtype = DType::kInt32, .dims = {rows}, .data = buffers.back().data()}});
      }
    } else {
      if (!input.shape.ranked()) return absl::OkStatus();
      for (Dim d : input.shape.dims()) {
        if (d.IsUnknown()) return absl::OkStatus();
        tensor.dims.push_back(Resolve(d, ads));
      }
    }
    buffers.emplace_back(tensor.bytes(), '\0');
    tensor.data = buffers.back().data();
    inputs.push_back({input.name, tensor});
  }
  return Run(inputs, RunOptions{}, workspace, result);
}

}  // namespace ulfd::engine
