// ulf.NetParameter and weights -> Graph.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_GRAPH_LOADER_H_
#define ULFD_ENGINE_GRAPH_GRAPH_LOADER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/graph/graph.h"
#include "engine/layers/layer.h"
#include "engine/weights/weights.h"
#include "proto/ulf.pb.h"

namespace ulfd::engine {

struct GraphOptions {
  std::vector<std::string> outputs;  // Empty: tensors that no layer reads, sorted by name.
  bool guide_eps = false;
  bool trunc_all = false;
  std::vector<std::string> int64_inputs;  // Dense inputs that are int64.
  bool nhwc = false;  // Images are [rows, height, width, channels]; kernels are NCHW's already.
  absl::Span<const LayerType* const> layer_types = {};  // Further ones, of plug-ins.
  PackedWeights* packed = nullptr;                      // See ParseContext.
};

// Builds the graph in the order of the file.  Errors name the layer by index, name and type: an
// unknown layer type, a wrong arity, a bottom that nothing before it makes (and whether a later
// layer does), a weight problem, a parameter out of range.  `weights` has one entry per layer
// (WeightFile::Match) and must outlive the graph.
absl::StatusOr<Graph> BuildGraph(const ulf::NetParameter& net,
                                 const std::vector<std::vector<Weight>>& weights,
                                 const GraphOptions& options, ModelResources& resources,
                                 Notices& notices);

// The type of a graph input by its name: `.ids` int64; `.segments` and `mask` int32; all others
// float32.
DType InputDType(absl::string_view name);

// `layer 12 "fc1" (inner_product_layer)`.
std::string LayerLabel(int index, absl::string_view name, absl::string_view type);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_GRAPH_LOADER_H_
