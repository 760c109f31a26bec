// Layers that are linear in one input, column by column.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_GRAPH_PASSES_AFFINE_H_
#define ULFD_ENGINE_GRAPH_PASSES_AFFINE_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/graph/editor.h"

namespace ulfd::engine {

// Constants that repeat longer than this are no parameters of columns.
inline constexpr int64_t kMaxPeriod = 1 << 16;

// A layer as y = (x op c), c repeating along the flattened x; or a bn_layer.
struct Link {
  int node = -1;
  ValueId x = kNoValue;
  std::vector<double> c;  // Empty for a bn_layer.
  bool constant_first = false;
  int64_t period = 1;
};

// nullopt: the node is none, or its output has another shape or level than x.
std::optional<Link> AsLink(const GraphEditor& editor, int index);

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

// What `columns` are behind the link.
void Apply(const GraphEditor& editor, const Link& link, std::vector<Affine>& columns);

// The one number that a constant is filled with.
std::optional<float> Filled(const GraphEditor& editor, ValueId value);

// A float that is neither infinite nor NaN, nor has lost its digits.
inline bool Representable(double v) {
  return v == 0 || (std::abs(v) > 1e-30 && std::abs(v) < 1e30);
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_GRAPH_PASSES_AFFINE_H_
