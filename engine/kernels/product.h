// A product with a matrix that does not change: the one place where it is chosen what computes it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_PRODUCT_H_
#define ULFD_ENGINE_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/fc.h"
#include "engine/tensor/onednn_product.h"

namespace ulfd::engine {

// Immutable after Choose; any thread may Run it.
class Product {
 public:
  // Some rows of a matrix, as FcBlock meets them.
  struct Rows {
    int64_t k = 0;
    int64_t w_row = FcBlock::kNext;
  };

  // With all of `matrix`, or with the rows that the blocks of its calls meet.
  explicit Product(std::shared_ptr<const PackedMatrix> matrix, std::vector<Rows> rows = {});

  // By default kNative.  kAuto measures, once per shape and process, what is faster for `rows`
  // rows; it takes oneDNN only if a row's bits do not depend on the number of rows there.  Once
  // oneDNN is chosen the product no longer holds the matrix.
  absl::Status Choose(Backend backend, int64_t rows);
  // kNative or kOneDnn.
  Backend backend() const { return onednn_ == nullptr ? Backend::kNative : Backend::kOneDnn; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  // Of what oneDNN has of the matrix.
  int64_t bytes() const { return onednn_ == nullptr ? 0 : onednn_->bytes(); }

  // What Run needs for so many rows.
  size_t ScratchBytes(int64_t rows) const;
  // Fc(call), with the matrix as call.w.  REQUIRES: rows of y without gaps; `scratch` 64-byte
  // aligned; UsesOneThread().
  absl::Status Run(FcCall call, void* scratch) const;

 private:
  absl::Status RunOneDnn(const OneDnnProduct& product, const FcCall& call, void* scratch) const;
  bool IsFaster(const OneDnnProduct& product, int64_t rows) const;

  std::shared_ptr<const PackedMatrix> matrix_;
  const std::vector<Rows> rows_;
  int64_t k_ = 0;
  const int64_t n_;
  std::unique_ptr<const OneDnnProduct> onednn_;
  std::vector<float> zeros_;  // A bias.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_PRODUCT_H_
