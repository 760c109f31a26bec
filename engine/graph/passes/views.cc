// Chains of concat, slice and reshape that put columns of one tensor side by side as they lie there
// -> a reshape, which is free, or one slice.
// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

absl::Status ReadWhereItLies(GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const Op op = editor.semantics(index).op;
  const ValueId output = node.outputs[0];
  const TensorSpec spec = editor.spec(output);
  if ((op != Op::kConcat && op != Op::kSlice) || spec.level == Level::kConstant ||
      spec.dtype != DType::kFloat32 || RowWidth(spec.shape) < 1) {
    return absl::OkStatus();
  }
  std::vector<int> through;
  const std::vector<Columns> columns = TraceColumns(editor, output, through);
  if (columns.size() != 1 || columns[0].value == output) return absl::OkStatus();
  const ValueId value = columns[0].value;
  const TensorSpec source = editor.spec(value);
  if (source.shape[0] != spec.shape[0] || source.level != spec.level) return absl::OkStatus();
  const bool whole = columns[0].width == RowWidth(source.shape);
  if (!whole && op == Op::kSlice && node.inputs[0] == value) return absl::OkStatus();
  std::vector<Node> added;
  ValueId rows = value;
  if (!whole) {
    rows = editor.NewValue(absl::StrCat(node.name, "/columns"));
    added.push_back(editor.NewNode(index, "columns", "slice_layer",
                                   MakeSlice({{columns[0].offset, columns[0].width}}), {value},
                                   {rows}));
  }
  std::vector<int64_t> sizes = {-1};
  for (int d = 1; d < spec.shape.rank(); ++d) sizes.push_back(spec.shape[d].value());
  added.push_back(
      editor.NewNode(index, "", "reshape_layer", MakeReshape(std::move(sizes)), {rows}, {output}));
  return editor.Replace(through, index, std::move(added),
                        absl::StrCat(node.Label(), " reads \"", editor.graph().values[value].name,
                                     "\" where it lies"));
}

}  // namespace

absl::Status FindViews(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return ReadWhereItLies(editor, index); });
}

}  // namespace ulfd::engine
