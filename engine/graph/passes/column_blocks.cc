// fuse, concat, slice, reshape and broadcast chains before a fully connected layer -> column blocks
// that it reads where they lie.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/fused/fused_fc.h"

namespace ulfd::engine {

namespace {

// The columns of [offset, offset + k) among those of a whole row.
void Cut(const std::vector<Columns>& row, int64_t offset, int64_t k, std::vector<Columns>& cut) {
  int64_t start = 0;
  for (const Columns& columns : row) {
    const int64_t from = std::max(offset, start), to = std::min(offset + k, start + columns.width);
    if (from < to) cut.push_back({columns.value, columns.offset + from - start, to - from});
    start += columns.width;
  }
}

absl::Status ReadBlocks(GraphEditor& editor, int index) {
  if (editor.semantics(index).op != Semantics::Op::kFusedFc) return absl::OkStatus();
  const Node& node = editor.node(index);
  const FusedFcOptions& old = *editor.semantics(index).fused_fc;
  std::vector<int> replaced = {index};
  FusedFcOptions options = old;
  options.blocks.clear();
  std::vector<ValueId> inputs;
  std::vector<std::string> names;
  // Something must still say how many rows there are.
  const Dim rows = editor.shape(node.outputs[0])[0];
  bool has_rows = old.init >= 0 && editor.shape(node.inputs[old.init])[0] == rows;
  for (const FusedFcOptions::Block& block : old.blocks) {
    std::vector<Columns> found;
    const ValueId x = node.inputs[block.input];
    Cut(old.flat ? TraceColumns(editor, x, replaced) : TraceLastAxis(editor, x, replaced),
        block.offset, block.k, found);
    for (const Columns& columns : found) {
      options.blocks.push_back({PlaceInput(columns.value, inputs), columns.offset, columns.width});
      has_rows |= editor.shape(columns.value)[0] == rows;
      names.push_back(absl::StrCat(editor.graph().values[columns.value].name, "[", columns.offset,
                                   ":", columns.offset + columns.width, "]"));
    }
  }
  if (replaced.size() == 1 || !has_rows) return absl::OkStatus();
  if (options.init >= 0) options.init = PlaceInput(node.inputs[options.init], inputs);
  std::string text =
      absl::StrCat(node.Label(), " reads ", absl::StrJoin(names, ", "), " without copies");
  Node fused = editor.NewNode(index, "", "fused_fc", std::make_shared<FusedFc>(std::move(options)),
                              std::move(inputs), node.outputs);
  return editor.Replace(replaced, index, {std::move(fused)}, std::move(text));
}

}  // namespace

absl::Status ReadColumnBlocks(GraphEditor& editor) {
  return editor.ForEach([&](int index) { return ReadBlocks(editor, index); });
}

}  // namespace ulfd::engine
