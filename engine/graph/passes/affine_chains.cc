// Arithmetic with constants, one layer after the other -> one bn_layer.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
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

absl::Status Fuse(GraphEditor& editor, const std::vector<Link>& chain) {
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
  return editor.Replace(nodes, last, {std::move(node)}, absl::StrCat(text, " -> (x - m) * s + t"));
}

}  // namespace

absl::Status FuseAffineChains(GraphEditor& editor) {
  return editor.ForEach([&](int i) {
    const std::vector<Link> chain =
        editor.node(i).outputs.size() == 1 ? ChainFrom(editor, i) : std::vector<Link>();
    return IsWorthwhile(editor, chain) ? Fuse(editor, chain) : absl::OkStatus();
  });
}

}  // namespace ulfd::engine
