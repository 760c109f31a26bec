// Batched matrix products, as building blocks of graph passes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_BATCHDOT_H_
#define ULFD_ENGINE_LAYERS_TYPES_BATCHDOT_H_

#include <memory>

#include "engine/layers/layer.h"

namespace ulfd::engine {

// batchdot_layer.
std::unique_ptr<Layer> MakeBatchDot(bool transpose_a, bool transpose_b);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_BATCHDOT_H_
