// The optimising passes, one per file.  See ../passes.h for the contract and ../passes.cc for their
// order.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
#define ULFD_ENGINE_GRAPH_PASSES_PASSES_H_

#include "absl/status/status.h"
#include "engine/graph/editor.h"

namespace ulfd::engine {

// Drops nodes none of whose values is read or an output.
absl::Status DropDeadCode(GraphEditor& editor);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
