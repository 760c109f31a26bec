// The ordered list of rewrites between loading a graph and planning it.
//
// lower -> optimise -> plan: today the list has one member, lowering.  An optimising pass is a
// function of the same form in a file of its own, added to kPasses in passes.cc.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_H_
#define ULFD_ENGINE_GRAPH_PASSES_H_

#include "absl/status/status.h"
#include "engine/graph/graph.h"

namespace ulfd::engine {

// Replaces composite layers by what they lower to.  Value names, outputs and file indices stay.
absl::Status LowerComposites(Graph& graph);

// Runs every pass in order.
absl::Status RunPasses(Graph& graph);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_H_
