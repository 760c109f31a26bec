// What is decided at load about running a graph: the order of its steps, the cut between the user's
// part and the ads' part, and how many ads make a tile.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_PLAN_PLAN_H_
#define ULFD_ENGINE_PLAN_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/plan/arena_layout.h"

namespace ulfd::engine {

// One kernel call.
struct Step {
  const Node* node = nullptr;
  std::unique_ptr<Kernel> kernel;
  bool view = false;       // Output 0 shares input 0's memory; nothing runs.
  bool embedding = false;  // Counted as lookup time.
};

// Immutable after MakePlan.  Steps [0, user_steps) depend on nothing of the ads.  How it runs over
// rows where they are proved independent: schedule.h.
struct Plan {
  Graph graph;
  GraphSpecs specs;  // With guesses for undescribed inputs, if those are consistent.
  std::vector<Step> steps;
  int user_steps = 0;
};

// Takes the graph, after all passes.  `statements` is what the manifest says of dense inputs,
// `guesses` what the graph before all passes suggests of every input (SuggestedSpecs): a layer that
// stands for others hides what those expect.
absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph,
                                                     absl::Span<const InputStatement> statements,
                                                     const GraphSpecs& guesses);

// The same for a graph whose specs are known: those that the optimiser kept.
absl::StatusOr<std::unique_ptr<const Plan>> MakePlan(Graph graph, GraphSpecs specs);

// `dim` for a request of one user and `ads` ads.  REQUIRES: not unknown.
int64_t Resolve(Dim dim, int64_t ads);

// Lays out what all steps make.  bytes: per value.  Outputs stay alive to the end.  reuse: false
// gives every value memory of its own.
ArenaLayout LayOut(const Plan& plan, absl::Span<const int64_t> bytes, bool reuse);

// Per step: which part of the ads' it is.
std::vector<ItemValues::Part> ItemParts(const Plan& plan);

// The value whose memory each value uses (itself, unless a view made it).
std::vector<ValueId> StorageRoots(const Plan& plan);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_PLAN_PLAN_H_
