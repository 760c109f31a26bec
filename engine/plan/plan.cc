// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/graph/rows_first.h"

namespace ulfd::engine {

namespace {

// What is known without guesses must be right; guesses that do not fit together are dropped.
absl::Status InferSpecs(const Graph& graph, absl::Span<const InputStatement> statements,
                        const GraphSpecs& guesses, GraphSpecs& strict, GraphSpecs& best) {
  strict = StatedSpecs(graph, statements);
  best = strict;
  RETURN_IF_ERROR(InferGraph(graph, strict));
  for (ValueId id : graph.inputs) best[id] = guesses[id];
  if (!InferGraph(graph, best).ok()) best = strict;
  return absl::OkStatus();
}

bool DependsOnAds(const Node& node, const GraphSpecs& specs) {
  const auto high = [&](ValueId id) {
    return specs[id].level == Level::kAd || specs[id].level == Level::kUnknown;
  };
  return std::any_of(node.inputs.begin(), node.inputs.end(), high) ||
         std::any_of(node.outputs.begin(), node.outputs.end(), high);
}

}  // namespace

int64_t Resolve(Dim dim, int64_t ads) { return dim.IsAds() ? dim.value() * ads : dim.value(); }

std::vector<ValueId> StorageRoots(const Plan& plan) {
  std::vector<ValueId> roots(plan.graph.values.size());
  std::iota(roots.begin(), roots.end(), 0);
  for (const Step& step : plan.steps) {
    if (step.view) roots[step.node->outputs[0]] = roots[step.node->inputs[0]];
  }
  return roots;
}

std::vector<ItemValues::Part> ItemParts(const Plan& plan) {
  std::vector<ItemValues::Part> parts;
  ItemValues values(plan.graph, plan.specs);
  for (const Step& step : plan.steps) parts.push_back(values.Add(*step.node));
  return parts;
}

ArenaLayout LayOut(const Plan& plan, absl::Span<const int64_t> bytes, bool reuse) {
  const std::vector<ValueId> roots = StorageRoots(plan);
  const int end = static_cast<int>(plan.steps.size());
  std::vector<int> last_use(roots.size(), -1);
  for (int s = 0; s < end; ++s) {
    for (ValueId id : plan.steps[s].node->inputs) last_use[roots[id]] = s;
    for (ValueId id : plan.steps[s].node->outputs) last_use[roots[id]] = s;
  }
  for (const NamedValue& output : plan.graph.outputs) last_use[roots[output.value]] = end;
  std::vector<Lifetime> lifetimes;
  for (int s = 0; s < end; ++s) {
    if (plan.steps[s].view) continue;
    for (ValueId id : plan.steps[s].node->outputs) {
      lifetimes.push_back({id, s, reuse ? last_use[id] : end, bytes[id]});
    }
  }
  return LayOut(std::move(lifetimes), roots.size());
}

namespace {

// `strict`: what kernels may rely on.
absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph, GraphSpecs best,
                                                     const GraphSpecs& strict) {
  auto plan = std::make_unique<Plan>();
  plan->graph = std::move(graph);
  plan->specs = std::move(best);
  std::vector<Node*> order;
  for (bool ads : {false, true}) {
    for (Node& node : plan->graph.nodes) {
      if (DependsOnAds(node, plan->specs) == ads) order.push_back(&node);
    }
    if (!ads) plan->user_steps = static_cast<int>(order.size());
  }
  for (Node* node : order) {
    Step step{.node = node};
    std::vector<TensorSpec> inputs;
    for (ValueId id : node->inputs) inputs.push_back(strict[id]);
    ASSIGN_OR_RETURN(step.kernel, Annotate(node->layer->Prepare(inputs), node->Label()));
    // What the optimiser computed has been laid out: one copy is enough.
    if (auto light = node->layer->WithoutWeights(); light != nullptr) node->layer = light;
    step.view = step.kernel->IsView();
    step.embedding = node->type == "embedding_layer";
    plan->steps.push_back(std::move(step));
  }
  return std::unique_ptr<const Plan>(std::move(plan));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph,
                                                     absl::Span<const InputStatement> statements,
                                                     const GraphSpecs& guesses) {
  GraphSpecs strict, specs;
  RETURN_IF_ERROR(InferSpecs(graph, statements, guesses, strict, specs));
  if (PutRowsFirst(strict, graph)) {
    RETURN_IF_ERROR(InferSpecs(graph, statements, guesses, strict, specs));
  }
  return MakePlan(std::move(graph), std::move(specs), strict);
}

absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph, GraphSpecs specs) {
  const GraphSpecs known = specs;
  return MakePlan(std::move(graph), std::move(specs), known);
}

}  // namespace ulfd::engine
