// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/plan_recipe.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/directory/load_reason.h"
#include "engine/graph/double_layers.h"
#include "engine/graph/passes.h"
#include "engine/runtime/load_checks.h"

namespace ulfd::engine {

namespace {

// Adds the optimised plan.  Returns why there is none, or "".  REQUIRES: ProveRows of the other.
std::string OptimisePlan(const PassOptions& options, Executable& executable, PlanReport& report) {
  const Plan& plan = *executable.plan;
  Graph graph = plan.graph;
  GraphSpecs specs = plan.specs;
  const size_t rewrites = report.rewrites.size();
  absl::Status status = Optimise(options, graph, specs, report.rewrites);
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<const Plan>> optimised =
        MakePlan(std::move(graph), std::move(specs));
    status = optimised.status();
    if (status.ok()) status = ProveRows(**optimised, *executable.info);
    if (status.ok()) executable.optimised = *std::move(optimised);
  }
  if (status.ok()) return "";
  // A defect of ours must not keep a good model from serving.
  report.rewrites.resize(rewrites);
  report.notices.push_back(absl::StrCat("executed as written: ", status.ToString()));
  return status.ToString();
}

// Chooses what computes the products of the plan that requests normally run.
absl::Status ChooseBackends(Backend backend, const Plan& plan) {
  constexpr int64_t kUsualRows = 64;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    RETURN_IF_ERROR(LoadScope::Check());
    for (Product* product : step.kernel->products()) {
      const bool of_user = static_cast<int>(s) < plan.user_steps;
      const absl::Status chosen = product->Choose(backend, of_user ? 1 : kUsualRows);
      if (!chosen.ok()) return Annotate(chosen, step.node->Label());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddStatements(absl::Span<const InputShape> shapes, const Graph& graph,
                           std::vector<InputStatement>& statements) {
  HashMap<absl::string_view, ValueId> inputs;
  for (ValueId id : graph.inputs) inputs.emplace(graph.values[id].name, id);
  for (const InputShape& shape : shapes) {
    const auto input = inputs.find(shape.name);
    if (input == inputs.end()) {
      return InvalidArgument("a shape is stated of \"", shape.name,
                             "\", which is no input of the graph");
    }
    statements.push_back(
        {.input = input->second, .level = shape.level, .row_shape = shape.row_shape});
  }
  return absl::OkStatus();
}

absl::StatusOr<GraphSpecs> InferSpecs(const Graph& graph, const GraphSpecs& stated,
                                      absl::Span<const InputStatement> statements) {
  GraphSpecs strict = stated;
  RETURN_IF_ERROR(WithLoadReason(InferGraph(graph, strict), LoadReason::kGraph));
  GraphSpecs specs = SuggestedSpecs(graph, stated, strict, statements);
  RETURN_IF_ERROR(
      WithLoadReason(CheckStatedLevels(graph, statements, specs), LoadReason::kManifest));
  return InferGraph(graph, specs).ok() ? specs : strict;
}

absl::Status MakePlans(const PlanRecipe& recipe, absl::Span<const InputStatement> statements,
                       const GraphSpecs& specs, Executable& executable, PlanReport& report) {
  Graph graph = recipe.graph;
  RETURN_IF_ERROR(WithLoadReason(
      ComputeInDouble(recipe.double_layers, specs, graph, report.rewrites), LoadReason::kManifest));
  RETURN_IF_ERROR(LowerComposites(graph));
  ASSIGN_OR_RETURN(executable.plan, WithLoadReason(MakePlan(std::move(graph), statements, specs),
                                                   LoadReason::kGraph));
  executable.optimised = nullptr;
  executable.schedule = executable.optimised_schedule = nullptr;
  const absl::Status proof = ProveRows(*executable.plan, *executable.info);
  report.proof_failure = std::string(proof.message());
  report.not_optimised = !recipe.optimise ? "optimisation is switched off"
                         : !proof.ok()    ? "ads are not proved independent"
                                          : OptimisePlan(recipe.passes, executable, report);
  RETURN_IF_ERROR(
      WithLoadReason(ChoosePrecisions(recipe.precision, recipe.double_layers, recipe.graph,
                                      *executable.plan, executable.optimised.get(), report.notices),
                     LoadReason::kManifest));
  RETURN_IF_ERROR(ChooseBackends(
      recipe.backend, executable.optimised != nullptr ? *executable.optimised : *executable.plan));
  if (!proof.ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(executable.schedule, MakeSchedule(*executable.plan, *executable.info, false));
  if (executable.optimised == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(executable.optimised_schedule,
                   MakeSchedule(*executable.optimised, *executable.info, recipe.cut_items));
  return absl::OkStatus();
}

}  // namespace ulfd::engine
