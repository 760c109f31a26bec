// Elementwise layers, each the only reader of the one before -> one formula, which goes through
// memory once.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/columns.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/types/expression_layer.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

// A formula may read so many tensors, and have so many instructions.
constexpr size_t kMaxInputs = 16, kMaxInstructions = 128;

Expression Of(ExpressionOp op) {
  Expression expression;
  for (int i = 0; i < OperandCount(op); ++i) {
    expression.program.push_back({.op = ExpressionOp::kInput, .input = i});
  }
  expression.program.push_back({.op = op});
  expression.stack = OperandCount(op);
  return expression;
}

// The formula of an elementwise layer.
std::optional<Expression> FormulaOf(const GraphEditor& editor, int index) {
  static constexpr std::pair<Op, ExpressionOp> kFormulas[] = {
      {Op::kAdd, ExpressionOp::kAdd},      {Op::kSubtract, ExpressionOp::kSub},
      {Op::kMultiply, ExpressionOp::kMul}, {Op::kDivide, ExpressionOp::kDiv},
      {Op::kRelu, ExpressionOp::kRelu},    {Op::kSigmoid, ExpressionOp::kSigmoid},
      {Op::kTanh, ExpressionOp::kTanh},    {Op::kWhere, ExpressionOp::kWhere}};
  for (const auto& [op, formula] : kFormulas) {
    if (op == editor.semantics(index).op) return Of(formula);
  }
  const Expression* const expression = ExpressionOf(*editor.node(index).layer);
  return expression == nullptr ? std::nullopt : std::optional<Expression>(*expression);
}

// The places of `from` among `inputs`, where those that are missing are added; -1 for `but`.
std::vector<int> Places(absl::Span<const ValueId> from, ValueId but, std::vector<ValueId>& inputs) {
  std::vector<int> places;
  for (ValueId id : from) places.push_back(id == but ? -1 : PlaceInput(id, inputs));
  return places;
}

// Takes the layer that makes `value` into the formula of node `index`, which reads it.
absl::Status Join(GraphEditor& editor, int index, ValueId value, const Expression& formula,
                  bool& done) {
  const Node& node = editor.node(index);
  const ValueId output = node.outputs[0];
  const int before = editor.Producer(value);
  if (before < 0 || editor.OnlyReader(value) != index) return absl::OkStatus();
  if (editor.shape(value) != editor.shape(output) ||
      editor.spec(value).level != editor.spec(output).level) {
    return absl::OkStatus();
  }
  const std::optional<Expression> inner = FormulaOf(editor, before);
  if (!inner.has_value()) return absl::OkStatus();
  std::vector<ValueId> inputs;
  const std::vector<int> outer_places = Places(node.inputs, value, inputs);
  const std::vector<int> inner_places = Places(editor.node(before).inputs, kNoValue, inputs);
  Expression joined = Substitute(formula, outer_places, *inner, inner_places);
  if (inputs.size() > kMaxInputs || joined.program.size() > kMaxInstructions) {
    return absl::OkStatus();
  }
  std::string text = absl::StrCat(editor.node(before).Label(), " in one pass with ", node.Label());
  Node fused = editor.NewNode(index, "", "expression_layer", MakeExpression(std::move(joined)),
                              std::move(inputs), {output});
  done = true;
  return editor.Replace({before, index}, index, {std::move(fused)}, std::move(text));
}

}  // namespace

absl::Status JoinElementwise(GraphEditor& editor) {
  for (int i = 0; i < editor.size();) {
    bool done = false;
    const std::optional<Expression> formula = FormulaOf(editor, i);
    std::vector<ValueId> inputs;
    if (formula.has_value()) inputs = editor.node(i).inputs;
    for (size_t k = 0; k < inputs.size() && !done; ++k) {
      RETURN_IF_ERROR(Join(editor, i, inputs[k], *formula, done));
    }
    // The joined layer stands a place further ahead, and may take more.
    i = done ? i - 1 : i + 1;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
