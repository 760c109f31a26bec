// Drops transpositions that undo each other, also with elementwise layers and concat in between.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;
using Perm = std::vector<int>;

bool IsTranspose(const GraphEditor& editor, int index) {
  return index >= 0 && editor.semantics(index).op == Op::kTranspose;
}

// Two transpositions in a row are one.
absl::Status Compose(GraphEditor& editor, int first, int second) {
  const Perm& p = editor.semantics(first).perm;
  const Perm& q = editor.semantics(second).perm;
  Perm perm;
  for (int axis : q) perm.push_back(p[axis]);
  const Node& node = editor.node(second);
  const ValueId input = editor.node(first).inputs[0], output = node.outputs[0];
  if (std::is_sorted(perm.begin(), perm.end())) {
    if (editor.IsOutput(output)) return absl::OkStatus();  // It must be written in any case.
    return editor.Redirect(output, input,
                           absl::StrCat(node.Label(), " undoes ", editor.node(first).Label()));
  }
  std::string text =
      absl::StrCat(editor.node(first).Label(), " and ", node.Label(), " become one transposition");
  Node composed =
      editor.NewNode(second, "", node.type, MakeTranspose(std::move(perm)), {input}, {output});
  return editor.Replace({first, second}, second, {std::move(composed)}, std::move(text));
}

// Whether the layer works element by element, wherever the elements are.
bool Elementwise(const GraphEditor& editor, int index) {
  const Op op = editor.semantics(index).op;
  const std::vector<ValueId>& in = editor.node(index).inputs;
  return op == Op::kRelu || op == Op::kSigmoid || op == Op::kTanh ||
         (IsArithmetic(op) && std::all_of(in.begin(), in.end(), [&](ValueId id) {
            return editor.shape(id) == editor.shape(in[0]);
          }));
}

// Puts the transpositions of all inputs of a layer, if they are the same one and nothing else reads
// them, behind it.
absl::Status MoveBehind(GraphEditor& editor, int index) {
  const bool concat = editor.semantics(index).op == Op::kConcat;
  if (!concat && !Elementwise(editor, index)) return absl::OkStatus();
  const Node& node = editor.node(index);
  std::vector<int> replaced;
  std::vector<ValueId> inputs;
  for (ValueId input : node.inputs) {
    const int before = editor.Producer(input);
    if (!IsTranspose(editor, before) || editor.OnlyReader(input) != index) return absl::OkStatus();
    if (!replaced.empty() && editor.semantics(before).perm != editor.semantics(replaced[0]).perm) {
      return absl::OkStatus();
    }
    replaced.push_back(before);
    inputs.push_back(editor.node(before).inputs[0]);
  }
  const Perm perm = editor.semantics(replaced[0]).perm;
  replaced.push_back(index);
  std::string text = absl::StrCat(node.Label(), " comes before its transposition");
  const std::shared_ptr<const Layer> layer =
      concat ? std::shared_ptr<const Layer>(MakeConcat(perm[editor.semantics(index).axis]))
             : node.layer;
  const ValueId output = node.outputs[0];
  const ValueId inner = editor.NewValue(absl::StrCat(node.name, "/before"));
  const std::string type = node.type;
  std::vector<Node> added;
  added.push_back(editor.NewNode(index, "", type, layer, std::move(inputs), {inner}));
  added.push_back(editor.NewNode(index, "transpose", type, MakeTranspose(perm), {inner}, {output}));
  return editor.Replace(replaced, index, std::move(added), std::move(text));
}

}  // namespace

absl::Status MoveTransposes(GraphEditor& editor) {
  return editor.ForEach([&](int i) {
    if (!IsTranspose(editor, i)) return MoveBehind(editor, i);
    const int before = editor.Producer(editor.node(i).inputs[0]);
    return IsTranspose(editor, before) ? Compose(editor, before, i) : absl::OkStatus();
  });
}

}  // namespace ulfd::engine
