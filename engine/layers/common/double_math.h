// Layer functions computed in double, for layers whose magnitudes leave nothing of a float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_
#define ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/layers/semantics.h"
#include "engine/tensor/pace.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Borrowed memory, row-major without gaps.
struct DoubleTensor {
  TensorDims dims;
  double* data = nullptr;

  int64_t elements() const;
};

// One layer's function.  Immutable: shared by all threads.
struct DoubleFunction {
  // `out` has the shape that the layer's Infer gives for `in`, and does not overlap them.  Null:
  // there is no double version of the layer.
  std::function<void(absl::Span<const DoubleTensor> in, DoubleTensor& out, Pace& pace)> run;
  int64_t bytes = 0;  // Held beside the model's weights.
};

// What `semantics` borrows must outlive the result.
DoubleFunction MakeDoubleFunction(const Semantics& semantics);

// Names of the layer types that there is one for, for messages.
absl::string_view DoubleTypes();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_
