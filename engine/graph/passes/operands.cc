// Operands of matrix products that are put into another order first: a transposition of the last
// two axes, or single columns side by side -> the product reads them transposed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

// Whether the node transposes the last two axes and no other.
bool SwapsLastAxes(const Semantics& semantics) {
  if (semantics.op != Op::kTranspose || semantics.perm.size() < 3) return false;
  std::vector<int> wanted(semantics.perm.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  std::swap(wanted[wanted.size() - 1], wanted[wanted.size() - 2]);
  return semantics.perm == wanted;
}

// Whether the node puts columns [.., n, 1] side by side.
bool JoinsColumns(const GraphEditor& editor, int index) {
  const Semantics& semantics = editor.semantics(index);
  const std::vector<ValueId>& inputs = editor.node(index).inputs;
  const int rank = editor.shape(inputs[0]).rank();
  return semantics.op == Op::kConcat && rank >= 3 && semantics.axis == rank - 1 &&
         std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
           return editor.shape(id)[rank - 1] == Dim::Of(1) &&
                  editor.shape(id)[rank - 2].IsConst() && editor.spec(id).level >= Level::kUser;
         });
}

// The same columns as rows, one below the other.
ValueId AddRows(GraphEditor& editor, int product, int concat, std::vector<Node>& added) {
  std::vector<ValueId> rows;
  for (ValueId column : editor.node(concat).inputs) {
    const Shape& shape = editor.shape(column);
    std::vector<int64_t> sizes = {-1};
    for (int d = 1; d + 2 < shape.rank(); ++d) sizes.push_back(shape[d].value());
    sizes.insert(sizes.end(), {1, shape[shape.rank() - 2].value()});
    rows.push_back(editor.NewValue(absl::StrCat(editor.node(concat).name, "/row", rows.size())));
    added.push_back(editor.NewNode(concat, "row", "reshape_layer", MakeReshape(std::move(sizes)),
                                   {column}, {rows.back()}));
  }
  const ValueId joined = editor.NewValue(absl::StrCat(editor.node(concat).name, "/rows"));
  const int rank = editor.shape(editor.node(concat).inputs[0]).rank();
  added.push_back(editor.NewNode(product, "rows", "concat_layer", MakeConcat(rank - 2),
                                 std::move(rows), {joined}));
  return joined;
}

absl::Status ReadTransposed(GraphEditor& editor, int index, int operand) {
  const Node& node = editor.node(index);
  const ValueId value = node.inputs[operand];
  const int before = editor.Producer(value);
  if (before < 0) return absl::OkStatus();
  std::vector<Node> added;
  std::vector<ValueId> inputs = node.inputs;
  if (SwapsLastAxes(editor.semantics(before))) {
    inputs[operand] = editor.node(before).inputs[0];
  } else if (JoinsColumns(editor, before) && editor.OnlyReader(value) == index) {
    inputs[operand] = AddRows(editor, index, before, added);
  } else {
    return absl::OkStatus();
  }
  const Semantics& old = editor.semantics(index);
  added.push_back(editor.NewNode(
      index, "", node.type,
      MakeBatchDot(old.transpose_a != (operand == 0), old.transpose_b != (operand == 1)),
      std::move(inputs), node.outputs));
  std::string text = absl::StrCat(node.Label(), " reads what ", editor.node(before).Label(),
                                  " puts into another order");
  return editor.Replace({before, index}, index, std::move(added), std::move(text));
}

}  // namespace

absl::Status TransposeOperands(GraphEditor& editor) {
  return editor.ForEach([&](int index) {
    if (editor.semantics(index).op != Op::kBatchDot) return absl::OkStatus();
    RETURN_IF_ERROR(ReadTransposed(editor, index, 0));
    return editor.changed() ? absl::OkStatus() : ReadTransposed(editor, index, 1);
  });
}

}  // namespace ulfd::engine
