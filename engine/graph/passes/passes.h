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
// Composes transpositions and moves them behind elementwise and concat layers, until they meet
// their inverse.
absl::Status MoveTransposes(GraphEditor& editor);
// Layers over nothing but repeated rows of the user -> once per user.
absl::Status HoistUserRows(GraphEditor& editor);
// sum over a concat -> concat of sums; sum over a product of two tensors -> batchdot.
absl::Status RewriteSums(GraphEditor& editor);
// Transpositions, and columns side by side, before a batchdot -> operands read transposed.
absl::Status TransposeOperands(GraphEditor& editor);
// Merges nodes of equal function and inputs.
absl::Status MergeCommonSubexpressions(GraphEditor& editor);
// add, sub, multiply, div with constants and bn, one after the other -> one bn_layer.
absl::Status FuseAffineChains(GraphEditor& editor);

// inner_product_layer(_ex) -> fused_fc, for the passes below.
absl::Status UnifyFullyConnected(GraphEditor& editor);

// bn before or behind a fully connected layer -> its weights, where no digits are lost.
absl::Status FoldBatchNorm(GraphEditor& editor);

// fuse, concat, slice, reshape and broadcast chains -> column blocks of a fully connected layer.
absl::Status ReadColumnBlocks(GraphEditor& editor);

// Two fully connected layers without an activation between them -> one, where that is cheaper.
absl::Status MergeFcFc(GraphEditor& editor);

// The user's columns of a fully connected layer -> a product of their own, once per user.
absl::Status SplitUserColumns(GraphEditor& editor);

// The columns of a fully connected layer that only the ads' inputs decide -> a product of their own
// (PassOptions::item_columns).
absl::Status SplitItemColumns(GraphEditor& editor);

// x W_a + (x * s) W_m -> x (W_a + diag(s) W_m), where s is the user's.
absl::Status FoldScaledInputs(GraphEditor& editor);

// Layers over [q, k, q - k, q * k], with what follows per position, mask, softmax and weighted
// sum -> an attention unit.
absl::Status FuseAttention(GraphEditor& editor);

// bn and activations behind a fully connected layer -> its epilogue.
absl::Status FuseEpilogues(GraphEditor& editor);

// Chains of concat, slice and reshape that leave columns as they lie -> reshape or one slice.
absl::Status FindViews(GraphEditor& editor);

// Elementwise layers one after the other -> one formula.
absl::Status JoinElementwise(GraphEditor& editor);

// Fully connected layers over the same columns, with like epilogues -> one, whose readers take
// columns of it.
absl::Status MergeParallelFc(GraphEditor& editor);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
