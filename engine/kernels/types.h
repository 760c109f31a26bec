// What kernels are told, as plain structs: nothing here has code, because the sources that are
// compiled for one instruction set include it (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TYPES_H_
#define ULFD_ENGINE_KERNELS_TYPES_H_

#include <cstdint>

namespace ulfd::engine {

// What products with weights are computed in, from what moves scores least to what moves them most.
enum class Precision : uint8_t {
  kFp32,
  kAuto,  // bf16 where that is faster on this machine.
  kBf16,
  kInt8,
};

// An elementwise function with parameters per column.  Parameters are borrowed and hold exactly as
// many values as there are columns; nothing is read behind them.
struct Activation {
  enum class Kind : uint8_t {
    kNone,
    kRelu,     // x < 0 ? 0 : x; NaN stays NaN.
    kPrelu,    // x > 0 ? x : slope * x.
    kSigmoid,  // 1 / (1 + exp(-x)).
    kTanh,
    kDice,  // p * x + (1 - p) * gamma * x with p = sigmoid((x - mean) * scale).
  };
  Kind kind = Kind::kNone;
  const float* slope = nullptr;  // kPrelu.
  const float* mean = nullptr;   // kDice, as are the following.
  const float* scale = nullptr;
  const float* gamma = nullptr;
};

// (x - mean) * scale + beta per column, in this order (decision 0004).  All three or none.
struct CentredAffine {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

// How a finished value leaves a kernel: the affine, then the activation.
struct Epilogue {
  CentredAffine affine;
  Activation activation;
};

// Some columns of the left operand: rows of k floats, `stride` floats apart; 0: one row for all.
struct FcBlock {
  static constexpr int64_t kNext = -1;
  const float* x = nullptr;
  int64_t stride = 0;
  int64_t k = 0;
  // The row of the right operand that meets the first of these columns; kNext: the one behind those
  // of the block before.
  int64_t w_row = kNext;
};

// The right operand [k, n] of a fully connected layer.
//   Panels of 16 columns: element (i, j) is data[j / 16 * panel_stride + i * row_stride + j % 16],
//   in the last panel, if it has fewer than 16 columns, with tail_row_stride instead.  `padded`: up
//   to a multiple of 8 columns the last panel may be read, too (and holds zeros).
//   Columns: element (i, j) is data[j * k + i]; what matrices of up to kMaxColumns have.
// precision: kBf16: a float of it holds two elements, of rows 2i (lower half) and 2i + 1 of a
// column.  kInt8: four bytes with signs, of rows 4i to 4i + 3, lowest first, and `scales` [2, n]:
// what 1 is worth in each column, and the sum of the column; never in the second layout.  The
// floats of the left operand hold as many, along k; k, blocks and strides count such floats.  Up to
// kSlack floats behind such panels are read, whatever they hold.
struct MatrixView {
  static constexpr int64_t kPanel = 16;
  static constexpr int64_t kMaxColumns = 4;
  static constexpr int64_t kSlack = kPanel;
  const float* data = nullptr;
  int64_t k = 0;
  int64_t n = 0;
  int64_t panel_stride = 0;
  int64_t row_stride = 0;
  int64_t tail_row_stride = 0;
  bool padded = false;
  bool columns = false;
  Precision precision = Precision::kFp32;
  const float* scales = nullptr;
};

// Elementwise operators of two operands.
enum class BinaryOp : uint8_t {
  kAdd,
  kSub,
  kMultiply,
  kDiv,
  kMin,  // NaN if either is, like kMax; of zeros the second.
  kMax,
  kLess,  // 1 or 0, and so on.
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kPow,  // By the C library, a call per value, but for one exponent of 2, 3 or 4.
};
// Elementwise functions without parameters.
enum class UnaryOp : uint8_t {
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kLog,  // NaN of negative numbers, -infinity of 0.
  kSqrt,
  kNeg,
  kAbs,
  kSin,  // Beyond 8192 by the C library, a call per value.
  kCos,
  kErf,
  kFloor,
  kTrunc,
  kRound,  // To the nearest whole number, of two the even one.
};

// What the entries along an axis become one by.
enum class ReduceOp : uint8_t {
  kSum,
  kMax,  // NaN if one is, like kMin; of none infinite.
  kMin,
  kProduct,
};

// An operand of rows: value (r, j) is data[r * stride + j * step].
struct Strided {
  const float* data = nullptr;
  int64_t stride = 0;  // 0: one row for all.
  int64_t step = 1;    // 1, or 0: one value per row.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_TYPES_H_
