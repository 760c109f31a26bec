// Composite layers -> primitive ones.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/graph/passes.h"

namespace ulfd::engine {

namespace {

// Puts what the node is made of into `nodes`; its outputs keep their value ids.
absl::Status Lower(const Node& composite, Graph& graph, std::vector<Node>& nodes) {
  Lowering lowering(static_cast<int>(composite.inputs.size()),
                    static_cast<int>(composite.outputs.size()));
  RETURN_IF_ERROR(composite.layer->Lower(lowering));
  const std::vector<Lowering::Value>& outputs = lowering.outputs();
  if (std::count(outputs.begin(), outputs.end(), -1) > 0) {
    return Internal(composite.Label(), ": lowered without all outputs");
  }
  std::vector<ValueId> values = composite.inputs;  // Per value of the lowering.
  for (size_t p = 0; p < lowering.parts().size(); ++p) {
    const Lowering::Part& part = lowering.parts()[p];
    Node node{.file_index = composite.file_index,
              .name = absl::StrCat(composite.name, "/", part.suffix),
              .type = composite.type,
              .layer = part.layer};
    // Two layers of the same function lower to primitives that are the same one by one.
    if (!composite.function.empty()) node.function = absl::StrCat(composite.function, "/", p);
    for (const Lowering::Value input : part.inputs) node.inputs.push_back(values[input]);
    for (int i = 0; i < part.outputs; ++i) {
      const auto own = std::find(outputs.begin(), outputs.end(), static_cast<int>(values.size()));
      node.outputs.push_back(own == outputs.end() ? graph.AddValue({.name = node.name})
                                                  : composite.outputs[own - outputs.begin()]);
      values.push_back(node.outputs.back());
    }
    nodes.push_back(std::move(node));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LowerComposites(Graph& graph) {
  std::vector<Node> nodes;
  nodes.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (!node.composite) {
      nodes.push_back(std::move(node));
      continue;
    }
    RETURN_IF_ERROR(Lower(node, graph, nodes));
  }
  graph.nodes = std::move(nodes);
  return absl::OkStatus();
}

}  // namespace ulfd::engine
