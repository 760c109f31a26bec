// Layers that move elements, as building blocks of graph passes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_SHAPE_H_
#define ULFD_ENGINE_LAYERS_TYPES_SHAPE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// reshape_layer; `sizes` as in ulf.ReshapeParameter.  REQUIRES: at most one -1, none below.
std::unique_ptr<Layer> MakeReshape(std::vector<int64_t> sizes);
// concat_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeConcat(int axis);
// slice_layer of columns [offset, offset + width): [d0, width].  REQUIRES: offset >= 0, width >= 1.
std::unique_ptr<Layer> MakeSlice(int64_t offset, int64_t width);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_SHAPE_H_
