// The columns of a fully connected layer that only the ads' inputs decide -> a product of their
// own, which the ad cache can keep.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/graph/passes/weights.h"
#include "engine/layers/fused/fused_fc.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {

namespace {

// The sum of two tensors.
std::unique_ptr<Layer> MakeSumOfTwo() {
  Expression sum;
  for (const int input : {0, 1}) {
    sum.program.push_back({.op = ExpressionOp::kInput, .input = input});
  }
  sum.program.push_back({.op = ExpressionOp::kAdd});
  sum.stack = 2;
  return MakeExpression(std::move(sum));
}

}  // namespace

absl::Status SplitItemColumns(GraphEditor& editor) {
  if (editor.options().item_columns == INT64_MAX) return absl::OkStatus();
  for (int i = 0; i < editor.size(); ++i) {
    if (editor.semantics(i).op != Semantics::Op::kFusedFc) continue;
    const ItemValues items = editor.FindItems();
    const Node& node = editor.node(i);
    const FusedFcOptions& whole = *editor.semantics(i).fused_fc;
    if (!whole.flat || items.has(node.outputs[0])) continue;
    FcPart item, rest;
    int64_t row = 0;
    for (const FusedFcOptions::Block& block : whole.blocks) {
      const ValueId value = node.inputs[block.input];
      (items.has(value) ? item : rest).Add(whole, block, value, row);
      row += block.k;
    }
    const int64_t item_k = item.options.k(), rest_k = rest.options.k();
    if (item_k < editor.options().item_columns) continue;
    std::vector<Node> added;
    // Each product starts from what was computed before it.
    ValueId sums = editor.NewValue(absl::StrCat(node.name, "/item"));
    std::vector<ValueId> item_inputs = std::move(item.inputs), rest_inputs = std::move(rest.inputs);
    item.options.bias = whole.bias;
    added.push_back(
        editor.NewNode(i, "item", node.type, item.Make(whole.n()), std::move(item_inputs), {sums}));
    if (whole.init >= 0) {
      const ValueId both =
          rest_k > 0 ? editor.NewValue(absl::StrCat(node.name, "/sums")) : node.outputs[0];
      added.push_back(editor.NewNode(i, "sums", "expression_layer", MakeSumOfTwo(),
                                     {sums, node.inputs[whole.init]}, {both}));
      sums = both;
    }
    if (rest_k > 0) {
      rest.options.init = static_cast<int>(rest_inputs.size());
      rest_inputs.push_back(sums);
      added.push_back(editor.NewNode(i, "", node.type, rest.Make(whole.n()), std::move(rest_inputs),
                                     node.outputs));
    }
    const int more = static_cast<int>(added.size()) - 1;
    std::string text = absl::StrCat(node.Label(), ": ", item_k, " of ", item_k + rest_k,
                                    " columns are the ad's alone, multiplied before the others");
    RETURN_IF_ERROR(editor.Replace({i}, i, std::move(added), std::move(text)));
    i += more;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
