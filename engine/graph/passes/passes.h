// The optimising passes, one per file.  See ../passes.h for the contract; the table in ../passes.cc
// has their order and says what each does.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
#define ULFD_ENGINE_GRAPH_PASSES_PASSES_H_

#include "absl/status/status.h"
#include "engine/graph/editor.h"

namespace ulfd::engine {

absl::Status DropDeadCode(GraphEditor& editor);
absl::Status FoldConstants(GraphEditor& editor);
absl::Status MoveTransposes(GraphEditor& editor);
absl::Status HoistUserRows(GraphEditor& editor);
absl::Status RewriteSums(GraphEditor& editor);
absl::Status TransposeOperands(GraphEditor& editor);
absl::Status MergeCommonSubexpressions(GraphEditor& editor);
absl::Status FuseAffineChains(GraphEditor& editor);
absl::Status FuseDice(GraphEditor& editor);
absl::Status UnifyFullyConnected(GraphEditor& editor);
absl::Status FoldBatchNorm(GraphEditor& editor);
absl::Status ReadColumnBlocks(GraphEditor& editor);
absl::Status MergeFcFc(GraphEditor& editor);
absl::Status SplitUserColumns(GraphEditor& editor);
absl::Status SplitItemColumns(GraphEditor& editor);
absl::Status FuseAttention(GraphEditor& editor);
absl::Status FuseDotProductAttention(GraphEditor& editor);
absl::Status FuseEpilogues(GraphEditor& editor);
absl::Status FindViews(GraphEditor& editor);
absl::Status MergeParallelFc(GraphEditor& editor);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_PASSES_H_
