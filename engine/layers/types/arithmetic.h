// Arithmetic, as building blocks of other layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_
#define ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_

#include <memory>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// sum_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeSum(int axis);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_
