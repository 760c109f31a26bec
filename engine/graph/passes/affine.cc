// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/passes/affine.h"

#include <cmath>

#include "engine/layers/checks.h"

namespace ulfd::engine {
namespace {

using Op = Semantics::Op;

// The values of a constant that numpy repeats along `shape` as one flat vector; empty if it does
// not do so, or not without making the result larger.
std::vector<double> Repeating(const GraphEditor& editor, ValueId id, const Shape& shape) {
  const Value& value = editor.graph().values[id];
  if (value.kind != Value::Kind::kConstant || value.constant.empty()) return {};
  std::vector<double> c(value.constant.begin(), value.constant.end());
  if (c.size() == 1) return c;
  const Shape& own = editor.shape(id);
  int first = 0;  // Leading 1s repeat everything behind them.
  while (own[first] == Dim::Of(1)) ++first;
  const int skipped = shape.rank() - own.rank();
  // The rows (axis 0) have no constants of their own.
  if (first + skipped < 1) return {};
  for (int i = first; i < own.rank(); ++i) {
    if (own[i] != shape[i + skipped]) return {};
  }
  return c;
}

}  // namespace

std::optional<Link> AsLink(const GraphEditor& editor, int index) {
  const Node& node = editor.node(index);
  const Semantics& semantics = editor.semantics(index);
  Link link{.node = index};
  if (semantics.op == Op::kBatchNorm) {
    link.x = node.inputs[0];
    link.period = semantics.params->period;
  } else if (IsArithmetic(semantics.op)) {
    for (const int side : {1, 0}) {
      if (!link.c.empty() || (side == 0 && semantics.op == Op::kDivide)) continue;
      link.c = Repeating(editor, node.inputs[side], editor.shape(node.inputs[1 - side]));
      link.x = node.inputs[1 - side];
      link.constant_first = side == 0;
    }
    link.period = static_cast<int64_t>(link.c.size());
  }
  if (link.x == kNoValue || link.period < 1 || link.period > kMaxPeriod) return std::nullopt;
  const TensorSpec &x = editor.spec(link.x), &y = editor.spec(node.outputs[0]);
  if (x.level == Level::kConstant || x.level != y.level || x.shape != y.shape) return std::nullopt;
  return link;
}

std::optional<float> Filled(const GraphEditor& editor, ValueId value) {
  absl::Span<const float> data = editor.graph().values[value].constant;
  const int producer = editor.Producer(value);
  if (producer >= 0) data = editor.semantics(producer).constant;
  if (data.empty() || editor.spec(value).level != Level::kConstant) return std::nullopt;
  for (float v : data) {
    if (v != data[0]) return std::nullopt;
  }
  return data[0];
}

void Apply(const GraphEditor& editor, const Link& link, std::vector<Affine>& columns) {
  const Semantics& semantics = editor.semantics(link.node);
  for (size_t i = 0; i < columns.size(); ++i) {
    Affine& column = columns[i];
    if (semantics.op == Op::kBatchNorm) {
      const std::vector<std::vector<float>>& p = semantics.params->values;
      const size_t j = i % semantics.params->block;
      column.Add(-double{p[2][j]});
      column.Scale(double{p[1][j]} / std::sqrt(double{p[3][j]} + double{semantics.eps}));
      column.shift += p[0][j];
      continue;
    }
    const double c = link.c[i % link.c.size()];
    switch (semantics.op) {
      case Op::kAdd:
        column.Add(c);
        break;
      case Op::kSubtract:
        if (link.constant_first) column.Scale(-1);
        column.Add(link.constant_first ? c : -c);
        break;
      case Op::kMultiply:
        column.Scale(c);
        break;
      default:
        column.Scale(1 / c);
    }
  }
}

}  // namespace ulfd::engine
