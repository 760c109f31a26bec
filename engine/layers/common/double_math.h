// Layer functions computed in double, for layers whose magnitudes leave nothing of a float32.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_
#define ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/layers/semantics.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// Borrowed memory, row-major without gaps.
struct DoubleTensor {
  TensorDims dims;
  double* data = nullptr;

  int64_t elements() const;
};

// One layer's function.  Immutable: shared by all threads.
class DoubleFunction {
 public:
  virtual ~DoubleFunction() = default;
  // `out` has the shape that the layer's Infer gives for `in`, and does not overlap them.
  virtual void Run(absl::Span<const DoubleTensor> in, DoubleTensor& out) const = 0;
  // Memory held beside the model's weights.
  virtual int64_t bytes() const { return 0; }
};

// nullptr if there is no double version of that function.  What `semantics` borrows must outlive
// the result.
std::unique_ptr<const DoubleFunction> MakeDoubleFunction(const Semantics& semantics);

// Names of the layer types that there is one for, for messages.
absl::string_view DoubleTypes();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_DOUBLE_MATH_H_
