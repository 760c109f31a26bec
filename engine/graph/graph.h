// The graph of a model: values (tensors) and the nodes (layers) that compute them, in order.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_GRAPH_H_
#define ULFD_ENGINE_GRAPH_GRAPH_H_

#include <memory>
#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

using ValueId = int;
constexpr ValueId kNoValue = -1;

// A tensor of the graph.  A name that a file uses twice (in-place layers) makes two values.
struct Value {
  enum class Kind { kInput, kConstant, kComputed };
  std::string name;
  Kind kind = Kind::kComputed;
  DType dtype = DType::kFloat32;
  // kConstant: the values, owned by the weight file; dims are the weight's with a leading 1.
  TensorDims constant_dims;
  absl::Span<const float> constant;
  // Owner of `constant` where a pass computed it.
  std::shared_ptr<const std::vector<float>> owned;
};

// A layer of the graph.
struct Node {
  // Position in NetParameter.layer_params; several nodes share it after lowering.
  int file_index = 0;
  std::string name;  // LayerParameter.name, plus a suffix after lowering.
  std::string type;  // The row's name (aliases resolved).
  bool composite = false;
  // Positions in the file of all layers that it stands for, if those are several.
  std::vector<int> members;
  std::shared_ptr<const Layer> layer;
  // Equal for layers that compute the same function of their inputs: type, parameters and weights.
  // Empty: compare with nothing.
  std::string function;
  std::vector<ValueId> inputs, outputs;

  // `layer 12 "fc1" (inner_product_layer)`, for messages.
  std::string Label() const;
};

struct NamedValue {
  std::string name;
  ValueId value = kNoValue;
};

// What a graph is made of.  A copy shares layers and constants.  Nodes stand in an order in which
// every value is computed before it is read.
struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;      // In the order of the file.
  std::vector<NamedValue> outputs;  // Sorted by name, or as the manifest says.
  // The last value of every name that a layer makes, in the order of the file.
  std::vector<NamedValue> tensors;

  ValueId AddValue(Value value) {
    values.push_back(std::move(value));
    return static_cast<ValueId>(values.size()) - 1;
  }
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_GRAPH_H_
