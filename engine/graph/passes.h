// The optimiser: an ordered list of rewrites between lowering and planning.
//
// A pass rewrites what it can prove and what its cost check finds cheaper, through a GraphEditor
// (editor.h), which keeps shapes and levels up to date and records what was saved.  Values keep
// their ids: a rewrite makes another node compute the same value.  Each pass has a file of its own
// in passes/, a row in the table in passes.cc, and a differential test against the graph as
// written.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_H_
#define ULFD_ENGINE_GRAPH_PASSES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/graph/rewrite.h"

namespace ulfd::engine {

class GraphEditor;

struct Pass {
  absl::string_view name;
  bool reassociates = false;  // Off with PassOptions::exact.
  // false: another kernel computes the same function, so that last bits may differ.
  bool same_bits = true;
  absl::Status (*run)(GraphEditor& editor) = nullptr;
};

// In the order in which they run.
absl::Span<const Pass> AllPasses();

// Replaces composite layers by what they lower to.  Value names, outputs and file indices stay.
absl::Status LowerComposites(Graph& graph);

// Runs the passes over a lowered graph.  `specs` are those of its values and are extended and kept
// right; every value must be proved (no unknown level).  Appends to `rewrites`.  An error is a
// defect of a pass: the graph is then to be thrown away.
absl::Status Optimise(const PassOptions& options, Graph& graph, GraphSpecs& specs,
                      std::vector<Rewrite>& rewrites);

// What one node costs.  REQUIRES: every shape a function of users and ads.
Cost CostOf(const Node& node, const GraphSpecs& specs);

// One figure for a cost, to compare plans by: the time on one core if arithmetic and memory traffic
// did not overlap, at 40 GFLOP/s and 20 GB/s.  A rough guide, the same on every machine, so that a
// model is rewritten alike everywhere.
double EstimatedNs(const Cost& cost, double ads);
// Whether `after` is estimated to take less time than `before` for 1 ad and for 200.
bool IsCheaper(const Cost& after, const Cost& before);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_H_
