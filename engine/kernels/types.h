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
enum class BinaryOp : uint8_t { kAdd, kSub, kMultiply, kDiv };
// Elementwise functions without parameters.
enum class UnaryOp : uint8_t { kRelu, kSigmoid, kTanh, kExp };

// What a step of RunBlocks (elementwise.h) does to the block of values that a program holds, "it".
enum class BlockOp : uint8_t {
  kLoad,   // it = a
  kStore,  // a = it
  kAdd,
  kSub,
  kSubFrom,  // it = a - it
  kMul,
  kDiv,
  kDivInto,  // it = a / it
  kMin,      // NaN if either is, like kMax; of zeros the second.
  kMinOf,    // it = min(a, it)
  kMax,
  kMaxOf,
  kLess,  // it = it < a ? 1 : 0, and so on.
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kNeg,
  kAbs,
  kSquare,
  kSqrt,
  kRelu,
  // As close to the exact value as Unary (elementwise.h); kLog: within 2 ulp.
  kExp,
  kLog,  // NaN of negative numbers, -infinity of 0.
  kSigmoid,
  kTanh,
  kSin,  // Within 2e-7; beyond 8192 by the C library, a call per value.
  kCos,
  kPow,    // it = it to the power a, by the C library: a call per value.
  kPowOf,  // it = a to the power it
  kWhere,  // it = it > 0 ? a : b
  // it = a + b, and so on.
  kLoadSum,
  kLoadDifference,
  kLoadProduct,
  // it = it + (a + b), and so on; each operation rounds.
  kAddSum,
  kAddDifference,
  kAddProduct,
  kSubSum,
  kSubDifference,
  kSubProduct,
  kSubFromSum,  // it = (a + b) - it
  kSubFromDifference,
  kSubFromProduct,
  kMulSum,
  kMulDifference,
  kMulProduct,
};

// Memory that a step reads or writes; of row r: data + r * row_stride.
struct BlockOperand {
  static constexpr int64_t kPlaceFloats = 64;
  // Value i of a row is data[i & kind].
  enum class Kind : int64_t {
    kRows = -1,                 // As many values as a row has.
    kScalar = 0,                // One value for the whole row.
    kPlace = kPlaceFloats - 1,  // kPlaceFloats values, overwritten from block to block.
  };
  float* data = nullptr;  // Written by kStore alone.
  int64_t row_stride = 0;
  Kind kind = Kind::kRows;
};
struct BlockStep {
  BlockOp op = BlockOp::kLoad;
  BlockOperand a, b;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_TYPES_H_
