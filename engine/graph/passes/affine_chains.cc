// Arithmetic with constants, one layer after the other -> one bn_layer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes/affine.h"
#include "engine/graph/passes/passes.h"
#include "engine/layers/checks.h"
#include "engine/layers/types/building_blocks.h"

namespace ulfd::engine {

namespace {

using Op = Semantics::Op;

// Layers in a row, each the only reader of the one before, and what they are together.
struct Chain {
  std::vector<Link> links;
  std::vector<Affine> columns = {{}};
};

bool AllRepresentable(const std::vector<Affine>& columns) {
  return std::all_of(columns.begin(), columns.end(), [](const Affine& column) {
    return Representable(column.mean) && Representable(column.scale) && Representable(column.shift);
  });
}

// From node `first` on, for as long as floats hold what the layers are together: so every layer is
// looked at a bounded number of times, whatever its values are.
Chain ChainFrom(const GraphEditor& editor, int first) {
  Chain chain;
  for (int next = first; next >= 0;) {
    std::optional<Link> link = AsLink(editor, next);
    if (!link.has_value()) break;
    if (!chain.links.empty() && link->x != editor.node(chain.links.back().node).outputs[0]) break;
    const size_t before = chain.columns.size();
    const auto period = std::lcm(static_cast<int64_t>(before), link->period);
    if (period > kMaxPeriod) break;
    std::vector<Affine> columns(period);
    for (size_t i = 0; i < columns.size(); ++i) columns[i] = chain.columns[i % before];
    Apply(editor, *link, columns);
    if (!AllRepresentable(columns)) break;
    chain.columns = std::move(columns);
    next = editor.OnlyReader(editor.node(next).outputs[0]);
    chain.links.push_back(*std::move(link));
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

absl::Status Fuse(GraphEditor& editor, const Chain& chain) {
  std::vector<int> nodes;
  std::string text;
  for (const Link& link : chain.links) {
    nodes.push_back(link.node);
    absl::StrAppend(&text, text.empty() ? "" : ", ", editor.node(link.node).Label());
  }
  std::vector<float> mean, scale, shift;
  for (const Affine& column : chain.columns) {
    mean.push_back(static_cast<float>(column.mean));
    scale.push_back(static_cast<float>(column.scale));
    shift.push_back(static_cast<float>(column.shift));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Layer> layer, MakeBatchNorm(mean, scale, shift));
  const int last = nodes.back();
  const ValueId x = chain.links[0].x;
  Node node =
      editor.NewNode(last, "affine", "bn_layer", std::move(layer), {x}, editor.node(last).outputs);
  // The specs agree by AsLink; what the new layer says of them is asked all the same.
  const absl::StatusOr<TensorSpecs> specs = node.layer->Infer({editor.spec(x)});
  if (!specs.ok() || specs->front().shape != editor.shape(node.outputs[0])) return absl::OkStatus();
  return editor.Replace(nodes, last, {std::move(node)}, absl::StrCat(text, " -> (x - m) * s + t"));
}

}  // namespace

absl::Status FuseAffineChains(GraphEditor& editor) {
  return editor.ForEach([&](int i) {
    if (editor.node(i).outputs.size() != 1) return absl::OkStatus();
    const Chain chain = ChainFrom(editor, i);
    return IsWorthwhile(editor, chain.links) ? Fuse(editor, chain) : absl::OkStatus();
  });
}

}  // namespace ulfd::engine
