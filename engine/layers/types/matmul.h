// The fully connected layer as a building block of composite layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_MATMUL_H_
#define ULFD_ENGINE_LAYERS_TYPES_MATMUL_H_

#include <memory>

#include "engine/layers/layer.h"
#include "engine/weights/weights.h"

namespace ulfd::engine {

// inner_product_layer without bias: y = x * weight.  REQUIRES: `weight` is a matrix [k, n]; its
// data outlives the layer.
std::unique_ptr<Layer> MakeInnerProduct(const Weight& weight);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_MATMUL_H_
