// Primitive layers that other layers lower to: the same elements in another order or shape.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_REARRANGE_H_
#define ULFD_ENGINE_LAYERS_TYPES_REARRANGE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// Axis perm[k] of the input becomes axis k.  REQUIRES: each of 0..perm.size() - 1 once.
std::unique_ptr<Layer> MakeTranspose(std::vector<int> perm);

// Axis `axis` of size a becomes two axes.  `inner` > 0: [a / inner, inner]; `outer` > 0:
// [outer, a / outer].  REQUIRES: exactly one of them is above 0.
std::unique_ptr<Layer> MakeSplitAxis(int axis, int64_t outer, int64_t inner);

// Axes [first, first + count) become one.
std::unique_ptr<Layer> MakeMergeAxes(int first, int count);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_REARRANGE_H_
