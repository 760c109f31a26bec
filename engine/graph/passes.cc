// The ordered list of rewrites between lowering and planning.
// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/graph/editor.h"
#include "engine/graph/passes/passes.h"

namespace ulfd::engine {

namespace {

constexpr Pass kPasses[] = {
    {.name = "dead_code",
     .summary = "drops layers that no output depends on",
     .run = &DropDeadCode},
    {.name = "constant_folding",
     .summary = "computes at load what depends on constants only",
     .run = &FoldConstants},
    {.name = "identities",
     .summary = "drops layers that change nothing, bit for bit",
     .run = &DropIdentities},
    {.name = "transposes",
     .summary = "drops transpositions that undo each other",
     .run = &MoveTransposes},
    {.name = "common_subexpressions",
     .summary = "computes once what several layers compute from the same inputs",
     .run = &MergeCommonSubexpressions},
    {.name = "user_rows",
     .summary = "computes once per user what is repeated for each ad before it is computed",
     .same_bits = false,
     .run = &HoistUserRows},
    {.name = "sums",
     .summary = "sums products of tensors, and parts of a concat, without writing them",
     .reassociates = true,
     .run = &RewriteSums},
    {.name = "operands",
     .summary = "matrix products read transposed what would be transposed before them",
     .same_bits = false,
     .run = &TransposeOperands},
    {.name = "affine_chains",
     .summary = "arithmetic with constants becomes one bn_layer",
     .reassociates = true,
     .run = &FuseAffineChains},
    {.name = "fully_connected",
     .summary = "brings fully connected layers into the form that the next passes work on",
     .same_bits = false,
     .run = &UnifyFullyConnected},
    {.name = "batch_norm",
     .summary = "folds batch normalisation into the weights before or behind it",
     .reassociates = true,
     .run = &FoldBatchNorm},
    {.name = "column_blocks",
     .summary = "reads the pieces of fuse, concat and slice chains where they lie",
     .same_bits = false,
     .run = &ReadColumnBlocks},
    {.name = "fc_fc",
     .summary = "two fully connected layers in a row become one where that is less work",
     .reassociates = true,
     .run = &MergeFcFc},
    {.name = "user_split",
     .summary = "multiplies the user's columns of a fully connected layer once per user",
     .reassociates = true,
     .run = &SplitUserColumns},
    {.name = "item_split",
     .summary = "multiplies apart what an ad cache can keep of a fully connected layer",
     .reassociates = true,
     .run = &SplitItemColumns},
    {.name = "scaled_input",
     .summary = "folds a product with the user's row into weights made once per user",
     .reassociates = true,
     .run = &FoldScaledInputs},
    {.name = "epilogue",
     .summary = "applies bn and activations while a fully connected layer's sums are in registers",
     .same_bits = false,
     .run = &FuseEpilogues},
    {.name = "attention",
     .summary = "runs attention over [q, k, q - k, q * k] without writing that tensor",
     .reassociates = true,
     .run = &FuseAttention},
    {.name = "parallel_fc",
     .summary = "fully connected layers over the same columns become one",
     .reassociates = true,
     .run = &MergeParallelFc},
    {.name = "views",
     .summary = "columns that lie side by side already are not put there again",
     .run = &FindViews},
    {.name = "elementwise",
     .summary = "elementwise layers in a row become one formula",
     .same_bits = false,
     .run = &JoinElementwise},
    {.name = "dead_code",
     .summary = "drops layers that no output depends on",
     .run = &DropDeadCode},
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
    RETURN_IF_ERROR(Annotate(pass.run(editor), absl::StrCat("pass ", pass.name)));
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
