// Arithmetic with constants, one layer after the other -> one bn_layer.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/cyclic.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// Constants that repeat longer than this are no parameters of columns.
constexpr int64_t kMaxPeriod = 1 << 16;

// A layer as y = (x op c), c repeating along the flattened x; or a bn_layer.
struct Link {
  int node = -1;
  ValueId x = kNoValue;
  std::vector<double> c;  // Empty for a bn_layer.
  bool constant_first = false;
  int64_t period = 1;
};

// The values of a constant that numpy repeats along `shape` as one flat vector; empty if it does
// not do so, or not without making the result larger.
std::vector<double> Repeating(const GraphEditor& editor, ValueId id, const Shape& shape) {
  const Value& value = editor.graph().values[id];
  if (value.kind != Value::Kind::kConstant || value.constant.empty()) return {};
  const std::vector<double> c(value.constant.begin(), value.constant.end());
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

// y = (x - mean) * scale + shift, in double.
struct Affine {
  double mean = 0, scale = 1, shift = 0;

  // What is subtracted first stays so: real models subtract means of 5e5, and a float has no digits
  // left for the difference of two products of that size.
  void Add(double c) {
    (scale == 1 && shift == 0 ? mean : shift) += scale == 1 && shift == 0 ? -c : c;
  }
  void Scale(double c) {
    scale *= c;
    shift *= c;
  }
};

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

// A float that is neither infinite nor NaN, nor has lost its digits.
bool Representable(double v) { return v == 0 || (std::abs(v) > 1e-30 && std::abs(v) < 1e30); }

// Links from node `first` on, each the only reader of the one before.
std::vector<Link> ChainFrom(const GraphEditor& editor, int first) {
  std::vector<Link> chain;
  int64_t period = 1;
  for (int next = first; next >= 0;) {
    std::optional<Link> link = AsLink(editor, next);
    const ValueId output = editor.node(next).outputs[0];
    if (!link.has_value()) break;
    if (!chain.empty() && link->x != editor.node(chain.back().node).outputs[0]) break;
    period = std::lcm(period, link->period);
    if (period > kMaxPeriod) break;
    chain.push_back(*std::move(link));
    next = editor.OnlyReader(output);
  }
  return chain;
}

bool IsFullyConnected(const GraphEditor& editor, int node) {
  return node >= 0 && editor.semantics(node).op == Op::kFullyConnected;
}

// Two layers become one; a single one becomes a bn_layer only where that can go into weights.
bool IsWorthwhile(const GraphEditor& editor, const std::vector<Link>& chain) {
  if (chain.size() > 1) return true;
  if (chain.empty() || chain[0].c.empty()) return false;
  const int before = editor.Producer(chain[0].x);
  return (IsFullyConnected(editor, before) && editor.OnlyReader(chain[0].x) == chain[0].node) ||
         IsFullyConnected(editor, editor.OnlyReader(editor.node(chain[0].node).outputs[0]));
}

absl::Status Fuse(GraphEditor& editor, const std::vector<Link>& chain, bool& done) {
  int64_t period = 1;
  for (const Link& link : chain) period = std::lcm(period, link.period);
  std::vector<Affine> columns(period);
  std::vector<int> nodes;
  std::string text;
  for (const Link& link : chain) {
    Apply(editor, link, columns);
    nodes.push_back(link.node);
    absl::StrAppend(&text, text.empty() ? "" : ", ", editor.node(link.node).Label());
  }
  std::vector<float> mean, scale, shift;
  for (const Affine& column : columns) {
    for (double v : {column.mean, column.scale, column.shift}) {
      if (!Representable(v)) return absl::OkStatus();
    }
    mean.push_back(static_cast<float>(column.mean));
    scale.push_back(static_cast<float>(column.scale));
    shift.push_back(static_cast<float>(column.shift));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer, MakeBatchNorm(mean, scale, shift));
  const int last = nodes.back();
  Node node = editor.NewNode(last, "affine", "bn_layer", std::move(layer), {chain[0].x},
                             editor.node(last).outputs);
  // The specs agree by AsLink; what the new layer says of them is asked all the same.
  const absl::StatusOr<TensorSpecs> specs = node.layer->Infer({editor.spec(chain[0].x)});
  if (!specs.ok() || specs->front().shape != editor.shape(node.outputs[0])) return absl::OkStatus();
  done = true;
  return editor.Replace(nodes, last, {std::move(node)}, absl::StrCat(text, " -> (x - m) * s + t"));
}

}  // namespace

absl::Status FuseAffineChains(GraphEditor& editor) {
  for (int i = 0; i < editor.size();) {
    const std::vector<Link> chain =
        editor.node(i).outputs.size() == 1 ? ChainFrom(editor, i) : std::vector<Link>();
    bool done = false;
    if (IsWorthwhile(editor, chain)) RETURN_IF_ERROR(Fuse(editor, chain, done));
    // What follows the chain moved to where it began.
    if (!done) ++i;
  }
  return absl::OkStatus();
}

}  // namespace ulfd::engine
