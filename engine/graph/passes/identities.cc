// Drops layers that change nothing, bit for bit, and steps over ones that only move elements.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// Whether the value is a constant all of whose elements have the bits of `wanted` (0 and -0
// differ).
bool IsAll(const GraphEditor& editor, ValueId id, float wanted) {
  const Value& value = editor.graph().values[id];
  if (value.kind != Value::Kind::kConstant || value.constant.empty()) return false;
  return std::all_of(value.constant.begin(), value.constant.end(), [&](float v) {
    return v == wanted && std::signbit(v) == std::signbit(wanted);
  });
}

// Whether a slice takes every element of a row in its place.
bool TakesAll(const GraphEditor& editor, int index) {
  const Semantics& slice = editor.semantics(index);
  int64_t next = 0;
  for (const Semantics::Piece& piece : slice.pieces) {
    if (piece.offset != next) return false;
    next += piece.elements;
  }
  const Shape& x = editor.shape(editor.node(index).inputs[0]);
  return slice.contiguous && x.RowElements() == Dim::Of(next);
}

// The input that the node's output equals bit for bit if their shapes agree; kNoValue: none.
// x + 0 is no such case (-0 + 0 is 0); x + -0 and x - 0 are.
ValueId EqualInput(const GraphEditor& editor, int index) {
  const std::vector<ValueId>& in = editor.node(index).inputs;
  const auto neutral = [&](float right, bool commutes) {
    if (IsAll(editor, in[1], right)) return in[0];
    return commutes && IsAll(editor, in[0], right) ? in[1] : kNoValue;
  };
  switch (editor.semantics(index).op) {
    case Op::kReshape:
    case Op::kBroadcast:
      return in[0];
    case Op::kConcat:
      return in.size() == 1 ? in[0] : kNoValue;
    case Op::kSlice:
      return TakesAll(editor, index) ? in[0] : kNoValue;
    case Op::kWhere:
      return in[1] == in[2] ? in[1] : kNoValue;
    case Op::kAdd:
      return neutral(-0.0f, true);
    case Op::kSubtract:
      return neutral(0.0f, false);
    case Op::kMultiply:
      return neutral(1.0f, true);
    case Op::kDivide:
      return neutral(1.0f, false);
    default:
      return kNoValue;
  }
}

// Whether node `index`, which reads what node `before` makes, may read that one's input instead: a
// reshape of a reshape, or an elementwise layer that repeats its operands itself.
bool CanStepOver(const GraphEditor& editor, int index, int before) {
  const Op op = editor.semantics(index).op, over = editor.semantics(before).op;
  if (op == Op::kReshape && over == Op::kReshape) return true;
  return (IsArithmetic(op) || op == Op::kWhere) && over == Op::kBroadcast;
}

// Lets the node read past what does not matter to it.  `done`: whether anything changed.
absl::Status StepOver(GraphEditor& editor, int index, bool& done) {
  for (ValueId input : editor.node(index).inputs) {
    const int before = editor.Producer(input);
    // Where something else needs the value, reading past it saves nothing.
    if (before < 0 || editor.OnlyReader(input) != index) continue;
    if (!CanStepOver(editor, index, before)) continue;
    Node node = editor.node(index);
    std::replace(node.inputs.begin(), node.inputs.end(), input, editor.node(before).inputs[0]);
    TensorSpecs specs;
    for (ValueId id : node.inputs) specs.push_back(editor.spec(id));
    const absl::StatusOr<TensorSpecs> out = node.layer->Infer(specs);
    if (!out.ok() || !GraphEditor::SameSpec(out->front(), editor.spec(node.outputs[0]))) continue;
    done = true;
    std::string text =
        absl::StrCat(node.Label(), " reads the input of ", editor.node(before).Label());
    return editor.Replace({before, index}, index, {std::move(node)}, std::move(text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status DropIdentities(GraphEditor& editor) {
  for (int i = 0; i < editor.size();) {
    const Node& node = editor.node(i);
    bool done = false;
    if (node.outputs.size() == 1) {
      const ValueId output = node.outputs[0];
      const ValueId equal = EqualInput(editor, i);
      if (equal != kNoValue && !editor.IsOutput(output) && editor.SameSpec(equal, output)) {
        done = true;
        RETURN_IF_ERROR(
            editor.Redirect(output, equal, absl::StrCat(node.Label(), " changes nothing")));
      } else {
        RETURN_IF_ERROR(StepOver(editor, i, done));
      }
    }
    // What changed stands a place further ahead now, and may change once more.
    i = done ? std::max(0, i - 1) : i + 1;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
