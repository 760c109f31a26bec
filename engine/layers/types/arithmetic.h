// Arithmetic, as building blocks of other layers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_
#define ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_

#include <memory>

#include "engine/kernels/types.h"
#include "engine/layers/layer.h"

namespace ulfd::engine {

// y = in[0] op in[1] with numpy broadcasting; all float32.
std::unique_ptr<Kernel> MakeArithmetic(BinaryOp op);
// sum_layer along `axis`.  REQUIRES: axis >= 0.
std::unique_ptr<Layer> MakeSum(int axis);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_TYPES_ARITHMETIC_H_
