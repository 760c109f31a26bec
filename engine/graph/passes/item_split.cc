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

absl::Status SplitItems(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Semantics::Op::kFusedFc) return absl::OkStatus();
  const ItemValues items = editor.FindItems();
  const Node& node = editor.node(index);
  const FusedFcOptions& whole = *editor.semantics(index).fused_fc;
  if (!whole.flat || items.has(node.outputs[0])) return absl::OkStatus();
  FcPart item, rest;
  int64_t row = 0;
  for (const FusedFcOptions::Block& block : whole.blocks) {
    const ValueId value = node.inputs[block.input];
    (items.has(value) ? item : rest).Add(whole, block, value, row);
    row += block.k;
  }
  const int64_t item_k = item.options.k(), rest_k = rest.options.k();
  if (item_k < editor.options().item_columns) return absl::OkStatus();
  std::vector<Node> added;
  // Each product starts from what was computed before it.
  ValueId sums = editor.NewValue(absl::StrCat(node.name, "/item"));
  std::vector<ValueId> item_inputs = std::move(item.inputs), rest_inputs = std::move(rest.inputs);
  item.options.bias = whole.bias;
  added.push_back(editor.NewNode(index, "item", node.type, item.Make(whole.n()),
                                 std::move(item_inputs), {sums}));
  if (whole.init >= 0) {
    const ValueId both =
        rest_k > 0 ? editor.NewValue(absl::StrCat(node.name, "/sums")) : node.outputs[0];
    added.push_back(editor.NewNode(index, "sums", "expression_layer", MakeSumOfTwo(),
                                   {sums, node.inputs[whole.init]}, {both}));
    sums = both;
  }
  if (rest_k > 0) {
    rest.options.init = static_cast<int>(rest_inputs.size());
    rest_inputs.push_back(sums);
    added.push_back(editor.NewNode(index, "", node.type, rest.Make(whole.n()),
                                   std::move(rest_inputs), node.outputs));
  }
  std::string text = absl::StrCat(node.Label(), ": ", item_k, " of ", item_k + rest_k,
                                  " columns are the ad's alone, multiplied before the others");
  return editor.Replace({index}, index, std::move(added), std::move(text));
}

}  // namespace

absl::Status SplitItemColumns(GraphEditor& editor) {
  if (editor.options().item_columns == INT64_MAX) return absl::OkStatus();
  return editor.ForEach([&](int index) { return SplitItems(editor, index); });
}

}  // namespace ulfd::engine
