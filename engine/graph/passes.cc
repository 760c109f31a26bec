// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes.h"

#include <algorithm>

#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/graph/editor.h"
#include "engine/graph/passes/passes.h"

namespace ulfd::engine {

namespace {

constexpr Pass kPasses[] = {
    // Drops layers that no output depends on.
    {.name = "dead_code", .run = &DropDeadCode},
    // Computes at load what depends on constants only.
    {.name = "constant_folding", .run = &FoldConstants},
    // Drops transpositions that undo each other.
    {.name = "transposes", .run = &MoveTransposes},
    // Computes once what several layers compute from the same inputs.
    {.name = "common_subexpressions", .run = &MergeCommonSubexpressions},
    // Computes once per user what is repeated for each ad before it is computed.
    {.name = "user_rows", .same_bits = false, .run = &HoistUserRows},
    // Sums products of tensors, and parts of a concat, without writing them.
    {.name = "sums", .reassociates = true, .run = &RewriteSums},
    // Matrix products read transposed what would be transposed before them.
    {.name = "operands", .same_bits = false, .run = &TransposeOperands},
    // Runs attention of many queries without writing what each means to each key.
    {.name = "dot_product_attention", .reassociates = true, .run = &FuseDotProductAttention},
    // Arithmetic with constants becomes one bn_layer.
    {.name = "affine_chains", .reassociates = true, .run = &FuseAffineChains},
    // A sigmoid of x that chooses between x and a multiple of it becomes one dice_layer.
    {.name = "dice", .reassociates = true, .run = &FuseDice},
    // Brings fully connected layers into the form that the next passes work on.
    {.name = "fully_connected", .same_bits = false, .run = &UnifyFullyConnected},
    // Folds batch normalisation into the weights before or behind it.
    {.name = "batch_norm", .reassociates = true, .run = &FoldBatchNorm},
    // Reads the pieces of fuse, concat and slice chains where they lie.
    {.name = "column_blocks", .same_bits = false, .run = &ReadColumnBlocks},
    // Two fully connected layers in a row become one where that is less work.
    {.name = "fc_fc", .reassociates = true, .run = &MergeFcFc},
    // Multiplies the user's columns of a fully connected layer once per user.
    {.name = "user_split", .reassociates = true, .run = &SplitUserColumns},
    // Multiplies apart what an ad cache can keep of a fully connected layer.
    {.name = "item_split", .reassociates = true, .run = &SplitItemColumns},
    // Applies bn and activations while a fully connected layer's sums are in registers.
    {.name = "epilogue", .same_bits = false, .run = &FuseEpilogues},
    // Runs attention over [q, k, q - k, q * k] without writing that tensor.
    {.name = "attention", .reassociates = true, .run = &FuseAttention},
    // Fully connected layers over the same columns become one.
    {.name = "parallel_fc", .reassociates = true, .run = &MergeParallelFc},
    // Columns that lie side by side already are not put there again.
    {.name = "views", .run = &FindViews},
    // Drops layers that no output depends on.
    {.name = "dead_code", .run = &DropDeadCode},
};

}  // namespace

absl::Span<const Pass> AllPasses() { return kPasses; }

absl::Status Optimise(const PassOptions& options, Graph& graph, GraphSpecs& specs,
                      std::vector<Rewrite>& rewrites) {
  int64_t copy_bytes = options.copy_bytes;
  for (const Pass& pass : kPasses) {
    const bool skipped =
        std::find(options.skip.begin(), options.skip.end(), pass.name) != options.skip.end();
    if (skipped || (options.exact && pass.reassociates)) continue;
    GraphEditor editor(options, graph, specs, rewrites, copy_bytes);
    editor.set_pass(pass.name);
    RETURN_IF_ERROR(Annotate(pass.run(editor), "pass ", pass.name));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
