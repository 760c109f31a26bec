// Operands of products in bf16: the upper half of a float, rounded to nearest even.  Products of
// two such numbers are summed in float.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_BF16_H_
#define ULFD_ENGINE_KERNELS_BF16_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {

// What products with weights are computed in.
enum class Precision : uint8_t {
  kFp32,
  kBf16,
  kAuto,  // bf16 where that is faster on this machine.
};

// "fp32", "bf16", "auto".
absl::string_view Name(Precision precision);

// Whether this machine has AVX512-BF16, and ActiveIsa() allows it.  All below requires it.
bool HasBf16();

// How many floats k numbers in bf16 take.
constexpr int64_t Bf16Pairs(int64_t k) { return (k + 1) / 2; }

// Rounds rows of k floats, `stride` apart, to rows of Bf16Pairs(k) floats without gaps, each of two
// numbers; the last of an odd k has a 0 beside it.  Denormal numbers become 0, NaN stays NaN.
void ToBf16(const float* x, int64_t stride, int64_t rows, int64_t k, float* to);

// Rounds a matrix of PackedMatrix::ViewOf into PackedFloats(Bf16Pairs(k), n) floats of the
// caller's, 64-byte aligned, and gives the view of these.
MatrixView PairRows(const MatrixView& from, float* to);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_BF16_H_
