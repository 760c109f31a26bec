// One element of a tensor, whatever its type: for comparing, reporting, and computing in double.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ELEMENT_H_
#define ULFD_ENGINE_TENSOR_ELEMENT_H_

#include <cstdint>

#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Element i in row-major order; an int64 beyond 2^53 is rounded.  REQUIRES: i < tensor.elements().
inline double ElementOf(const Tensor& tensor, int64_t i) {
  switch (tensor.dtype) {
    case DType::kInt32:
      return tensor.i32()[i];
    case DType::kInt64:
      return static_cast<double>(tensor.i64()[i]);
    case DType::kFloat32:
      break;
  }
  return tensor.f32()[i];
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ELEMENT_H_
