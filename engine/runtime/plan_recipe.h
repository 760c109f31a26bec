// Plans from a graph and what is stated of its inputs: at load, and again for shapes that requests
// show.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_RUNTIME_PLAN_RECIPE_H_
#define ULFD_ENGINE_RUNTIME_PLAN_RECIPE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/graph/rewrite.h"
#include "engine/kernels/backend.h"
#include "engine/plan/precision.h"
#include "engine/runtime/executor.h"

namespace ulfd::engine {

// What plans are made from.  Weights that only packed matrices read may be released in between.
struct PlanRecipe {
  Graph graph;                             // As the file has it.
  std::vector<InputStatement> statements;  // The manifest's.
  std::vector<std::string> double_layers;
  bool optimise = true;
  PassOptions passes;
  bool cut_items = false;  // See MakeSchedule.
  Backend backend = Backend::kNative;
  PrecisionChoice precision;
};

// What there is to say of them.
struct PlanReport {
  std::vector<Rewrite> rewrites;
  std::vector<std::string> notices;
  std::string not_optimised, proof_failure;  // See ModelInfo.
};

// Adds what `shapes` say.  INVALID_ARGUMENT for a name that is no input of the graph.
absl::Status AddStatements(absl::Span<const InputShape> shapes, const Graph& graph,
                           std::vector<InputStatement>& statements);

// Of every value: what is stated (`stated`: StatedSpecs), what follows from it, and what seems
// likely where that leads to no contradiction.  `statements`: the manifest's, whose levels hold for
// what is guessed.
absl::StatusOr<GraphSpecs> InferSpecs(const Graph& graph, const GraphSpecs& stated,
                                      absl::Span<const InputStatement> statements);

// Sets the plans and schedules of `executable`, whose info is set:
// the graph as written and, where it may be, the rewritten one.  `statements`: the recipe's, and
// more; `specs`: what InferSpecs makes of them.
absl::Status MakePlans(const PlanRecipe& recipe, absl::Span<const InputStatement> statements,
                       const GraphSpecs& specs, Executable& executable, PlanReport& report);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_RUNTIME_PLAN_RECIPE_H_
