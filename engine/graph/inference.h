// Shapes, types and levels of every value of a graph.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_INFERENCE_H_
#define ULFD_ENGINE_GRAPH_INFERENCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/graph/graph.h"

namespace ulfd::engine {

using GraphSpecs = std::vector<TensorSpec>;  // Per value of the graph.

// What is known of one input of the graph from outside: by the manifest, or from a request.
struct InputStatement {
  ValueId input = kNoValue;
  Level level = Level::kUnknown;
  std::optional<std::vector<int64_t>> row_shape;  // Dimensions after the rows.
};

// Specs of the inputs and constants that follow from the graph alone: an embedding layer states its
// own inputs, `statements` what they name, the last one of an input; everything else has any rank
// and no level.
GraphSpecs StatedSpecs(const Graph& graph, absl::Span<const InputStatement> statements);

// Fills in guesses for the inputs that nothing states, from the layers that read them
// (Layer::SuggestInputs).  A level that `statements` fixes holds for the guess, too.  `inferred`:
// the stated specs with everything that follows from them (InferGraph).
GraphSpecs SuggestedSpecs(const Graph& graph, const GraphSpecs& stated, const GraphSpecs& inferred,
                          absl::Span<const InputStatement> statements);

// Infers every computed value, in order, from the specs of the inputs and constants.  Errors name
// the layer and its inputs with their shapes.
absl::Status InferGraph(const Graph& graph, GraphSpecs& specs);

// Infers one node.  An input of unknown rank makes the outputs unknown.
absl::Status InferNode(const Graph& graph, const Node& node, GraphSpecs& specs);

// Which values depend on inputs of the ads, and on nothing but these and constants.
class ItemValues {
 public:
  ItemValues(const Graph& graph, const GraphSpecs& specs);

  bool has(ValueId value) const { return has_[value]; }
  enum class Part : uint8_t {
    kLookup,  // Embeddings of what the request brings.
    kItem,    // Anything else of an ad alone.
    kOther,
  };
  // What the node is; what it makes is added.  Nodes come in order.
  Part Add(const Node& node);

 private:
  const Graph& graph_;
  const GraphSpecs& specs_;
  std::vector<bool> has_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_INFERENCE_H_
