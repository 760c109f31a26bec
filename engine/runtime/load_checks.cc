// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/load_checks.h"

#include <algorithm>
#include <set>

#include "base/errors.h"

namespace ulfd::engine {

namespace {

// Infers the graph for one user and several ads; what is not known stays so.
absl::Status InferWithNumbers(const Graph& graph, GraphSpecs specs) {
  constexpr int64_t kAds = 7;
  for (TensorSpec& spec : specs) {
    if (!spec.shape.ranked()) continue;
    for (Dim& dim : spec.shape.dims()) {
      if (dim.IsUsers()) dim = Dim::Of(dim.value());
      if (dim.IsAds()) dim = Dim::Of(dim.value() * kAds);
    }
  }
  return InferGraph(graph, specs);
}

absl::string_view ManifestName(Level level) {
  return level == Level::kUser ? "INPUT_LEVEL_USER" : "INPUT_LEVEL_AD";
}

int64_t KernelBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const Step& step : plan.steps) bytes += step.kernel->bytes();
  return bytes;
}

int64_t WorkspaceBytes(const Schedule& schedule) {
  int64_t bytes =
      SaturatingAdd(schedule.user_layouts.front().bytes, schedule.ad_layouts.back().bytes);
  for (const Operand& output : schedule.outputs) {
    const bool of_ads = output.place == Operand::Place::kAd;
    bytes = SaturatingAdd(bytes, output.row_bytes * (of_ads ? schedule.tile_rows : 1));
  }
  return bytes;
}

}  // namespace

absl::Status CheckStatedLevels(const Graph& graph, absl::Span<const InputStatement> statements,
                               const GraphSpecs& specs) {
  absl::Status status = InferWithNumbers(graph, specs);
  if (status.ok()) return status;
  for (const InputStatement& statement : statements) {
    const TensorSpec& stated = specs[statement.input];
    if (statement.level == Level::kUnknown || !stated.shape.ranked() || stated.shape.rank() == 0) {
      continue;
    }
    GraphSpecs other = specs;
    const bool user = statement.level == Level::kUser;
    other[statement.input].level = user ? Level::kAd : Level::kUser;
    other[statement.input].shape[0] = user ? Dim::Ads() : Dim::Users();
    if (!InferWithNumbers(graph, other).ok()) continue;
    return InvalidArgument(
        "manifest: inputs \"", graph.values[statement.input].name, "\" has level ",
        ManifestName(statement.level),
        ", which the graph contradicts; with 1 user and 7 ads: ", status.message());
  }
  return absl::OkStatus();
}

ModelMemory MemoryOf(const Executable& executable) {
  ModelMemory memory;
  std::set<const void*> computed;
  for (const Plan* plan : {executable.plan.get(), executable.optimised.get()}) {
    if (plan == nullptr) continue;
    memory.kernels += KernelBytes(*plan);
    for (const Value& value : plan->graph.values) {
      if (value.owned == nullptr || !computed.insert(value.owned.get()).second) continue;
      memory.computed += static_cast<int64_t>(value.owned->size() * sizeof(float));
    }
  }
  for (const Schedule* schedule :
       {executable.schedule.get(), executable.optimised_schedule.get()}) {
    if (schedule == nullptr) continue;
    memory.workspace = std::max(memory.workspace, WorkspaceBytes(*schedule));
  }
  return memory;
}

absl::Status CheckMemory(const ModelMemory& memory, int64_t limit) {
  if (limit < 0) {
    return InvalidArgument("manifest: memory_limit_bytes is ", limit,
                           ", want 0 (no limit) or more");
  }
  const int64_t sum = SaturatingAdd(memory.held(), memory.workspace);
  if (limit == 0 || sum <= limit) return absl::OkStatus();
  return FailedPrecondition(
      "manifest: memory_limit_bytes is ", limit, ", and the model takes ", sum, ": weights ",
      memory.weights, " + tables ", memory.tables, " + copies laid out for speed ", memory.kernels,
      " + constants that the optimiser computed ", memory.computed, " + user_cache_bytes ",
      memory.cache, " + ad_cache_bytes ", memory.ad_cache,
      " + a worker's memory for one user and a tile of ads ", memory.workspace);
}

}  // namespace ulfd::engine
