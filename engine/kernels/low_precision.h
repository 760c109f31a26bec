// Operands of products in bf16 and int8.
//
// bf16: the upper half of a float, rounded to nearest even; products are summed in float.  int8:
// whole numbers of 8 bits and what one of them is worth, of a row of the left operand and of a
// column of the right; products are summed as whole numbers, exactly.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_LOW_PRECISION_H_
#define ULFD_ENGINE_KERNELS_LOW_PRECISION_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {

// "fp32", "auto", "bf16", "int8".
absl::string_view Name(Precision precision);
// Whether this machine has the instructions, and ActiveIsa() allows them: AVX512-BF16;
// AVX512-VNNI or AVX-VNNI.  True of kFp32; of kAuto as of kBf16.
bool Has(Precision precision);
// The instructions, for messages.
absl::string_view InstructionsOf(Precision precision);

// How many numbers of kFp32, kBf16 or kInt8 lie in a float, and how many floats k of them take.
constexpr int64_t PerFloat(Precision precision) {
  return precision == Precision::kInt8 ? 4 : precision == Precision::kBf16 ? 2 : 1;
}
constexpr int64_t FloatsOf(Precision precision, int64_t k) {
  return (k + PerFloat(precision) - 1) / PerFloat(precision);
}

// Rows of the left operand after rounding, of the caller's; see FcCall::ranges.
struct RoundedRows {
  static constexpr int64_t kSlack = 4;  // Floats behind the last row that may be overwritten.
  float* x = nullptr;
  int64_t stride = 0;
  float* ranges = nullptr;  // kInt8: [rows, 2].
};

// Rounds the blocks of each row, side by side, each to FloatsOf(k) floats.  Zeros stay zeros.
// In bf16 denormal numbers become 0, and NaN stays NaN; in int8 a row that holds a NaN or an
// infinity makes all that comes of it NaN.  REQUIRES: Has(precision); kBf16 or kInt8.
void RoundRows(Precision precision, absl::Span<const FcBlock> blocks, int64_t rows,
               const RoundedRows& to);

// Rounds a matrix of PackedMatrix::ViewOf to bf16, into PackedFloats(FloatsOf(kBf16, k), n) floats
// of the caller's, 64-byte aligned, and gives the view of these.  REQUIRES: Has(kBf16).
MatrixView PairRows(const MatrixView& from, float* to);

// The matrix of PackedMatrix::PackRounded in int8, row by row: [FloatsOf(kInt8, k), n], and its
// MatrixView::scales.
struct Int8Matrix {
  std::vector<float> fours, scales;
};
Int8Matrix FourRows(const float* data, int64_t k, int64_t n, int64_t row_stride,
                    int64_t column_stride);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_LOW_PRECISION_H_
