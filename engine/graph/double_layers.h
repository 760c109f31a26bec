// The manifest's double_layers: named layers are computed in double.
//
// Not an optimisation: it runs before the optimiser, on the graph as written, so that both plans
// have it, and the optimiser's passes leave its nodes alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_DOUBLE_LAYERS_H_
#define ULFD_ENGINE_GRAPH_DOUBLE_LAYERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/graph/rewrite.h"

namespace ulfd::engine {

// Puts the layers of those names (every layer of a name, where several share it) into nodes of type
// "double", one for each set of layers that are connected, of one level, and can be computed
// together.  Such a node takes float32 tensors, computes in double without rounding in between, and
// gives every tensor of its layers rounded to float32.  Between two such nodes tensors are rounded,
// too.  `specs` are those of the graph's values.  Appends to `rewrites` what was put together.
// INVALID_ARGUMENT names a name that no layer has, that is there twice, or whose layer is of a type
// or has tensors of a type that is not computed in double.  REQUIRES: composite layers are still
// whole.
absl::Status ComputeInDouble(absl::Span<const std::string> names, const GraphSpecs& specs,
                             Graph& graph, std::vector<Rewrite>& rewrites);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_DOUBLE_LAYERS_H_
