// Composite layers -> primitive ones.
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/graph/passes.h"

namespace ulfd::engine {

namespace {

// Lowers one composite node into `nodes`.  The node's outputs keep their value ids: a primitive's
// value that becomes an output is renamed to the output's id at the end.
class NodeSink final : public LoweringSink {
 public:
  NodeSink(const Node& composite, Graph& graph, std::vector<Node>& nodes)
      : composite_(composite), graph_(graph), nodes_(nodes), first_(nodes.size()) {}

  int inputs() const override { return static_cast<int>(composite_.inputs.size()); }
  int outputs() const override { return static_cast<int>(composite_.outputs.size()); }
  Value Input(int i) override { return composite_.inputs[i]; }

  Value Add(absl::string_view suffix, std::unique_ptr<Layer> primitive,
            absl::Span<const Value> inputs) override {
    return AddShared(suffix, std::move(primitive), inputs, 1)[0];
  }

  std::vector<Value> AddShared(absl::string_view suffix, std::shared_ptr<const Layer> primitive,
                               absl::Span<const Value> inputs, int outputs) override {
    Node node{.file_index = composite_.file_index,
              .name = absl::StrCat(composite_.name, "/", suffix),
              .type = composite_.type,
              .layer = std::move(primitive)};
    // Two layers of the same function lower to primitives that are the same one by one.
    if (!composite_.function.empty()) {
      node.function = absl::StrCat(composite_.function, "/", nodes_.size() - first_);
    }
    node.inputs.assign(inputs.begin(), inputs.end());
    for (int i = 0; i < outputs; ++i) node.outputs.push_back(graph_.AddValue({.name = node.name}));
    std::vector<Value> values(node.outputs.begin(), node.outputs.end());
    nodes_.push_back(std::move(node));
    return values;
  }

  void Output(int i, Value value) override { outputs_.push_back({i, value}); }

  absl::Status Finish() {
    if (outputs_.size() != composite_.outputs.size()) {
      return absl::InternalError(absl::StrCat(composite_.Label(), ": lowered to ", outputs_.size(),
                                              " outputs, want ", composite_.outputs.size()));
    }
    for (const auto& [i, value] : outputs_) {
      for (size_t n = first_; n < nodes_.size(); ++n) {
        for (ValueId& id : nodes_[n].inputs) id = id == value ? composite_.outputs[i] : id;
        for (ValueId& id : nodes_[n].outputs) id = id == value ? composite_.outputs[i] : id;
      }
    }
    return absl::OkStatus();
  }

 private:
  const Node& composite_;
  Graph& graph_;
  std::vector<Node>& nodes_;
  const size_t first_;
  std::vector<std::pair<int, Value>> outputs_;
};

}  // namespace

absl::Status LowerComposites(Graph& graph) {
  std::vector<Node> nodes;
  nodes.reserve(graph.nodes.size());
  for (Node& node : graph.nodes) {
    if (!node.composite) {
      nodes.push_back(std::move(node));
      continue;
    }
    NodeSink sink(node, graph, nodes);
    RETURN_IF_ERROR(node.layer->Lower(sink));
    RETURN_IF_ERROR(sink.Finish());
  }
  graph.nodes = std::move(nodes);
  return absl::OkStatus();
}

}  // namespace ulfd::engine
