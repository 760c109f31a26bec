// Activations, as building blocks of other graphs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_ACTIVATION_H_
#define ULFD_ENGINE_LAYERS_TYPES_ACTIVATION_H_

#include <memory>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// softmax_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeSoftmax(int axis);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_ACTIVATION_H_
