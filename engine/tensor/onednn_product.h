// Products with a matrix that does not change, on oneDNN; part of the one place that talks to it
// (see onednn.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ONEDNN_PRODUCT_H_
#define ULFD_ENGINE_TENSOR_ONEDNN_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::engine {

// y = x W + bias, or y += x W.  Primitives are made for a few numbers of rows that add up to any
// other, and the weights laid out as they want them.  Immutable; any thread may Run it.
class OneDnnProduct {
 public:
  // The largest number of rows that a primitive takes.
  static constexpr int64_t kMaxRows = 256;

  // w: [k, n] without gaps, needed no longer than the call, which takes some milliseconds.
  static absl::StatusOr<std::unique_ptr<const OneDnnProduct>> Create(const float* w, int64_t k,
                                                                     int64_t n);
  virtual ~OneDnnProduct() = default;

  // x [rows, k] and y [rows, n] without gaps, of any alignment.  bias: n values; null: y += x W.
  // `scratch` has scratch_bytes() bytes, 64-byte aligned.  REQUIRES: UsesOneThread().  INTERNAL if
  // oneDNN fails.
  virtual absl::Status Run(const float* x, int64_t rows, const float* bias, float* y,
                           void* scratch) const = 0;
  virtual size_t scratch_bytes() const = 0;
  // Of the weights.
  virtual int64_t bytes() const = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ONEDNN_PRODUCT_H_
