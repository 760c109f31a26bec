// Brings graphs whose tensors have their rows elsewhere than on axis 0 into an order in which every
// row can be told to whom it belongs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_ROWS_FIRST_H_
#define ULFD_ENGINE_GRAPH_ROWS_FIRST_H_

#include "engine/graph/graph.h"
#include "engine/graph/inference.h"

namespace ulfd::engine {

// Exports keep steps or heads before the ads ([steps, ads, E]), or merge them ([ads * heads, E]),
// and then nothing is proved.  Here each such tensor is computed as [ads, ...], its other elements
// in their order, by the same layers along other axes; transpositions that only move the rows go.
// Values of the graph's outputs, and all values with the rows in front, stay what they are; names
// of the others disappear from Graph::tensors.  `specs`: of the graph.  False: nothing to do, or a
// layer among them that cannot be told so; the graph is as it was.
bool PutRowsFirst(const GraphSpecs& specs, Graph& graph);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_ROWS_FIRST_H_
