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
// Turns nodes all of whose inputs are constants (constant_layer among them) into constants.  Gives
// the calling thread one OpenMP thread.
absl::Status FoldConstants(GraphEditor& editor);
// Drops nodes whose output equals an input bit for bit; a reshape reads past a reshape, an
// elementwise layer past a broadcast.
absl::Status DropIdentities(GraphEditor& editor);
// Merges nodes of equal function and inputs.
absl::Status MergeCommonSubexpressions(GraphEditor& editor);
// add, sub, multiply, div with constants and bn, one after the other -> one bn_layer.
absl::Status FuseAffineChains(GraphEditor& editor);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
