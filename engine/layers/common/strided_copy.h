// Copies elements in an order that a few strides describe: permutations, reversals, repetitions.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_STRIDED_COPY_H_
#define ULFD_ENGINE_LAYERS_COMMON_STRIDED_COPY_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Outputs in order; along each axis the place in the input moves by `step` elements (negative:
// backwards, 0: the same element again).
struct StridedCopy {
  struct Axis {
    int64_t count = 0;
    int64_t step = 0;
  };
  absl::InlinedVector<Axis, 8> axes;  // Outermost first.
  int64_t start = 0;                  // Place of the first element.

  // Adds an axis inside the others.
  void Add(int64_t count, int64_t step) { axes.push_back({count, step}); }
  // REQUIRES: `y` has as many elements as the product of the counts.
  void Run(const Tensor& x, Tensor& y) const;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_STRIDED_COPY_H_
