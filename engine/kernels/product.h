// A product with a matrix that does not change: the one place where it is chosen what computes it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_PRODUCT_H_
#define ULFD_ENGINE_KERNELS_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/fc.h"
#include "engine/kernels/low_precision.h"
#include "engine/tensor/onednn_product.h"

namespace ulfd::engine {

// Immutable after SetPrecision and Choose; any thread may Run it.
class Product {
 public:
  // Some rows of a matrix, as FcBlock meets them.
  struct Rows {
    int64_t k = 0;
    int64_t w_row = FcBlock::kNext;
  };

  // With all of `matrix`, or with the rows that the blocks of its calls meet.
  explicit Product(std::shared_ptr<const PackedMatrix> matrix, std::vector<Rows> rows = {});

  // By default kFp32.  kAuto measures, once per shape and process, whether kBf16 is faster for
  // `rows` rows.  kInt8 leaves in fp32 products of up to four columns, whose rounding takes longer
  // than it saves, sums that might not fit 32 bits, and columns that bytes cannot hold.  In bf16
  // and int8 our loops compute the product, whatever is chosen, and it no longer holds the matrix.
  // REQUIRES: Has(precision).
  void SetPrecision(Precision precision, int64_t rows);
  // kFp32, kBf16 or kInt8.
  Precision precision() const {
    return rounded_ == nullptr ? Precision::kFp32 : rounded_->view().precision;
  }
  // By default kNative.  kAuto measures, once per shape and process, what is faster for `rows`
  // rows; it takes oneDNN only if a row's bits do not depend on the number of rows there.  Once
  // oneDNN is chosen the product no longer holds the matrix.
  absl::Status Choose(Backend backend, int64_t rows);
  // kNative or kOneDnn.
  Backend backend() const { return onednn_ == nullptr ? Backend::kNative : Backend::kOneDnn; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  // Whether it still needs the matrix.
  bool reads_matrix() const { return matrix_ != nullptr; }
  // Of what it has of the matrix instead.
  int64_t bytes() const {
    return rounded_ != nullptr ? rounded_->bytes() : onednn_ == nullptr ? 0 : onednn_->bytes();
  }

  // What Run needs for so many rows.
  size_t ScratchBytes(int64_t rows) const;
  // Fc(call), with the matrix as call.w.  REQUIRES: the blocks that the constructor was told, or
  // one; rows of y without gaps; `scratch` 64-byte aligned; UsesOneThread().
  absl::Status Run(FcCall call, void* scratch) const;

 private:
  absl::Status RunOneDnn(const OneDnnProduct& product, const FcCall& call, void* scratch) const;
  // The rows that the blocks meet, [k(), n()] without gaps; each block with zeros behind it, up to
  // a multiple of `unit` rows.
  std::vector<float> RowsMet(int64_t unit) const;
  PackedMatrix Rounded(Precision precision) const;
  // Of what FoundOnce finds.
  std::string KeyOf(absl::string_view what, int64_t rows) const;
  bool OneDnnIsFaster(int64_t rows) const;
  bool Bf16IsFaster(int64_t rows) const;
  // Than Fc, for so many rows.
  bool IsFaster(int64_t rows, absl::FunctionRef<void(const FcCall& call)> run) const;

  std::shared_ptr<const PackedMatrix> matrix_;
  const std::vector<Rows> rows_;
  int64_t k_ = 0;
  const int64_t n_;
  std::unique_ptr<const PackedMatrix> rounded_;
  std::unique_ptr<const OneDnnProduct> onednn_;
  std::vector<float> zeros_;  // A bias.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_PRODUCT_H_
