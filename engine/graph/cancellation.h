// Where float32 loses its digits: layers that subtract nearly equal large numbers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_CANCELLATION_H_
#define ULFD_ENGINE_GRAPH_CANCELLATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/tensor/tensor.h"

namespace ulfd::engine {

struct Graph;

// A bn or dice layer whose input is so much larger than its deviation that rounding it to float32
// shows in the scores.
struct Cancellation {
  int layer = 0;  // Position in the file.
  std::string label;
  double ratio = 0;  // The largest |mean| / sqrt(var + eps).
  // Relative error of the layer's output that rounding its input to float32 makes, where 1 is a
  // typical output (|beta| + 3 |gamma|).
  double error = 0;
  // Names for `double_layers` in the manifest, in the order of the file: the layer and those before
  // it whose rounding it amplifies in the same way.
  std::vector<std::string> double_layers;
  // Layers among these that have no name or cannot be computed in double, as labels.
  std::vector<std::string> obstacles;
};

// Typical magnitude of a value per channel (flat index modulo `channels`), as observed on real
// inputs; empty: not observed.
using ObservedMagnitudes = std::function<std::vector<double>(int value, int64_t channels)>;

// Looks at every bn and dice of the graph.  What the weights alone say: a moving mean is the
// magnitude of the input, and where an FC stands before, its bias tells how much of that comes from
// the FC's own input.  From there on rounding errors are followed backwards to first order, through
// fully connected layers, activations and concatenations.  `observed` (may be null) is used instead
// where it knows a value.  Layers that are computed in double already are no findings.
std::vector<Cancellation> FindCancellation(const Graph& graph, const std::vector<TensorSpec>& specs,
                                           const ObservedMagnitudes& observed);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_CANCELLATION_H_
