// How a pass looks at a graph and changes it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_EDITOR_H_
#define ULFD_ENGINE_GRAPH_EDITOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"
#include "engine/graph/inference.h"
#include "engine/graph/passes.h"

namespace ulfd::engine {

// Whether it adds, subtracts, multiplies or divides, element by element.
inline bool IsArithmetic(Semantics::Op op) {
  using Op = Semantics::Op;
  return op == Op::kAdd || op == Op::kSubtract || op == Op::kMultiply || op == Op::kDivide;
}

// Holds the nodes of the graph while it lives: graph().nodes is empty meanwhile.  Node indices are
// positions in their order; Replace, Redirect, Fold and Remove make them invalid, and references to
// the nodes that go.  A change costs what it touches, and a few instructions per value of the
// graph.
class GraphEditor {
 public:
  // `copy_bytes`: what is left of PassOptions::copy_bytes.
  GraphEditor(const PassOptions& options, Graph& graph, GraphSpecs& specs,
              std::vector<Rewrite>& rewrites, int64_t& copy_bytes);
  ~GraphEditor();
  GraphEditor(const GraphEditor&) = delete;
  GraphEditor& operator=(const GraphEditor&) = delete;

  const PassOptions& options() const { return options_; }
  const Graph& graph() const { return graph_; }
  int size() const { return static_cast<int>(items_.size()); }
  const Node& node(int index) const { return items_[index]->node; }
  const Semantics& semantics(int index) const { return items_[index]->semantics; }
  const TensorSpec& spec(ValueId value) const { return specs_[value]; }
  const Shape& shape(ValueId value) const { return specs_[value].shape; }
  // Whether both have one type, level and shape.
  bool SameSpec(ValueId a, ValueId b) const { return SameSpec(specs_[a], specs_[b]); }
  static bool SameSpec(const TensorSpec& a, const TensorSpec& b) {
    return a.dtype == b.dtype && a.level == b.level && a.shape == b.shape;
  }
  // The node that computes the value; -1 for inputs and constants.
  int Producer(ValueId value) const { return producers_[value]; }
  // Nodes that read the value, ascending; a node that reads it twice is there twice.
  const std::vector<int>& Readers(ValueId value) const { return readers_[value]; }
  bool IsOutput(ValueId value) const { return outputs_[value]; }
  ItemValues FindItems() const;
  // The only node that reads the value, if the value is no output of the graph; -1 otherwise.
  int OnlyReader(ValueId value) const;

  // What a node costs, and what nodes would that are not part of the graph yet (in an order in
  // which every value is computed before it is read).  Errors: those of inference.
  Cost CostOfNode(int index) const { return CostOf(node(index), specs_); }
  absl::StatusOr<Cost> CostIfAdded(absl::Span<const Node> nodes) const;

  // Whether a pass may make changed copies of these matrices, `floats` numbers in all; TakeCopy: it
  // then does.  Copies of what a pass has made before take the place of that.
  bool MayCopy(absl::Span<const MatrixRef* const> from, int64_t floats) const;
  bool TakeCopy(absl::Span<const MatrixRef* const> from, int64_t floats);

  // Calls `visit` for every node, in order.  If that changes the graph, it goes on with what stands
  // where the node stood; so changes must come to an end.
  absl::Status ForEach(const std::function<absl::Status(int index)>& visit);
  // Whether the visit that goes on has changed the graph.
  bool changed() const { return changed_; }

  // A value for added nodes to compute.
  ValueId NewValue(absl::string_view name);
  // A node that stands for the layers of `origin` in counts and messages.
  Node NewNode(int origin, absl::string_view suffix, absl::string_view type,
               std::shared_ptr<const Layer> layer, std::vector<ValueId> inputs,
               std::vector<ValueId> outputs) const;

  // Puts `added` (in an order in which every value is computed before it is read) in the place of
  // node `at`, and removes those of `replaced` that nothing needs any more.  A value that `added`
  // computes must have had the same shape before; the old node that computed it must be among
  // `replaced`.  INTERNAL if that does not hold.
  absl::Status Replace(absl::Span<const int> replaced, int at, std::vector<Node> added,
                       std::string text);
  // Lets everything that reads `from` read `to` instead; then removes the producer of `from` if
  // nothing needs it.  REQUIRES: `from` is no output of the graph and `to` is computed before.
  absl::Status Redirect(ValueId from, ValueId to, std::string text);
  // Turns a computed value into a constant and removes its producer.  REQUIRES: float32, a producer
  // with one output.
  absl::Status Fold(ValueId value, std::vector<float> data, std::string text);
  // Removes node `index`.  REQUIRES: nothing needs it.
  void Remove(int index, std::string text);

  // The name of the pass that runs now, for the record.
  void set_pass(absl::string_view name) { pass_ = std::string(name); }

 private:
  static int64_t CopyBytes(absl::Span<const MatrixRef* const> from, int64_t floats);
  struct Item {
    Node node;
    Semantics semantics;
  };
  // Two steps of Replace.  Infers what the node makes; what it saves, in `saved`.
  absl::Status Admit(const Node& node, absl::Span<const int> replaced, Cost& saved);
  // Those of `replaced`, ascending, that nothing needs once `added` is there.
  absl::StatusOr<std::vector<int>> Unneeded(absl::Span<const int> replaced,
                                            absl::Span<const Node> added) const;
  // Drops the nodes `gone` (ascending) and puts `added` before what was node `at`.
  void Splice(absl::Span<const int> gone, int at, std::vector<Node> added);
  // Enters node `index` among the producers and readers of its values; takes it from them.
  void Link(int index);
  void Unlink(int index);
  void Record(std::vector<int> layers, std::string text, const Cost& saved);

  const PassOptions& options_;
  Graph& graph_;
  GraphSpecs& specs_;
  std::vector<Rewrite>& rewrites_;
  int64_t& copy_bytes_;
  std::string pass_;
  int visited_ = 0;
  bool changed_ = false;
  std::vector<std::unique_ptr<Item>> items_;  // In the order of the graph.
  std::vector<int> producers_;                // Per value.
  std::vector<std::vector<int>> readers_;     // Per value.
  std::vector<bool> outputs_;                 // Per value.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_EDITOR_H_
