// The kernels of one instruction set.
//
// Each is written once, over a small vector type, in *_body.h, and compiled once for each set that
// the target may have: in kernels_portable.cc, kernels_avx2.cc, kernels_avx512.cc, kernels_neon.cc,
// each with its own compiler flags.  Products are compiled again, with another multiply-add, in
// kernels_bf16.cc, kernels_int8_avx2.cc and kernels_int8_avx512.cc; kernels_amx.cc has loops of its
// own.
// What those sources include must define no inline function and no template outside of an unnamed
// namespace: the linker keeps one copy of such a function for the whole program, and it might be
// the one that an older machine cannot run.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TABLE_H_
#define ULFD_ENGINE_KERNELS_TABLE_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/row_args.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {

enum class Isa : uint8_t;

// See FcCall.
struct FcArgs {
  const FcBlock* blocks;
  int64_t block_count;
  int64_t k;  // Of all blocks.
  int64_t rows;
  MatrixView w;
  const float* ranges;
  const float* init;
  int64_t init_stride, init_repeat, init_period;
  Epilogue epilogue;
  float* y;
  int64_t y_stride;
};

// What NH takes at a time; words of the secret for so many bytes; and the words that the last of
// them needs beyond those.
inline constexpr int64_t kHashBlockBytes = 64;
inline constexpr size_t kHashBlockWords = 16, kHashMoreWords = 3 * kHashBlockWords;

// All functions are thread-safe, allocate nothing, take pointers of any alignment and read and
// write nothing outside of the arrays.
struct KernelTable {
  // See Fc in fc.h.
  void (*fc)(const FcArgs& args);
  // y[i] = op(x[i]) for i < n, within 2e-7 of the exact value, relative, down to denormal results
  // (there: within one denormal step); portable and kErf: 3e-7; kLog within 2 ulp, kSin and kCos
  // within 2e-7.  NaN gives NaN; infinities give the limits.  A value has the same bits wherever it
  // stands.  y may be x.
  void (*unary)(UnaryOp op, const float* x, float* y, int64_t n);
  // y = epilogue(x) for rows of n columns, x_stride and y_stride floats apart.  y may be x.
  void (*epilogue)(const Epilogue& epilogue, const float* x, int64_t x_stride, float* y,
                   int64_t y_stride, int64_t rows, int64_t n);
  // y[r * y_stride + j] = a(r, j) op b(r, j) for r < rows, j < n.  y may be an operand.
  void (*binary)(BinaryOp op, const Strided& a, const Strided& b, float* y, int64_t y_stride,
                 int64_t rows, int64_t n);
  // y[r * n + j] = condition(r, j) > 0 ? a(r, j) : b(r, j), likewise.
  void (*where)(const Strided& condition, const Strided& a, const Strided& b, float* y,
                int64_t rows, int64_t n);
  // Softmax over the middle axis of [outer, count, inner]; inner 1: over rows.  The maximum is
  // subtracted first; weights that underflow are exactly 0.  `log`: its logarithm, x - max -
  // log(sum(exp(x - max))).  y may be x.
  void (*softmax)(const float* x, float* y, int64_t outer, int64_t count, int64_t inner, bool log);
  // y [outer, inner] = the middle axis of [outer, count, inner] by the operation; sums in parts.
  void (*reduce)(ReduceOp op, const float* x, float* y, int64_t outer, int64_t count,
                 int64_t inner);
  // The places of the largest or smallest entries, likewise, of equal ones the first; NaN counts as
  // the worst of numbers.
  void (*best_places)(bool smallest, const float* x, float* places, int64_t outer, int64_t count,
                      int64_t inner);
  // y = (x - mean) / sqrt(mean of (x - mean)^2 + eps) * scale + shift for rows of n values, each
  // with its own mean, which is 0 if not `centred`.  y may be x.
  void (*layer_norm)(const RowNorm& norm, const float* x, float* y, int64_t rows, int64_t n);
  // y[e] = sum over t < count of w[t] * v[t * stride + e] for e < n.
  void (*weighted_sum)(const float* w, const float* v, int64_t stride, int64_t count, int64_t n,
                       float* y);
  // y = softmax over the keys of (scale * q k^T, masked), times v.  A query's result does not
  // depend on the others.
  // REQUIRES: at least one key; `scratch` has DotProductScratchBytes() (attention.h).
  void (*dot_product_attention)(const DotProductArgs& args, float* scratch);
  // b = wk + diag(q) * wp for matrices of one packed layout; wk may be null.
  void (*scale_rows)(const MatrixView& wk, const MatrixView& wp, const float* q, float* b);
  // Sum of a[i] * b[i].
  float (*dot)(const float* a, const float* b, int64_t n);
  // y[i, j] = the product of row i of a, [m, k], with row j of b, [n, k].  If these are one matrix,
  // each pair is computed once.
  void (*row_products)(const float* a, int64_t m, const float* b, int64_t n, int64_t k, float* y);
  // y[o, i, j] = bias[o] + the sum over t of w[o, t] * x[i, j + offsets[t]], for n columns j.
  void (*tap_rows)(const TapArgs& args);
  // to[j * to_step + i] = from[i * from_step + j] for i < rows and j < columns.  Steps are in
  // floats; nothing overlaps.
  void (*transpose)(const float* from, int64_t from_step, int64_t rows, int64_t columns, float* to,
                    int64_t to_step);
  // One step of a GRU for one row of n units: h = c + z * (h - c).  Here r = sigmoid(x_r + g_r),
  // z = sigmoid(x_z + g_z) and c = tanh(x_c + bias + r * g_c).  x and g hold 3 * n values in the
  // order r, z, c.  g is what h gives, biases included.
  void (*gru_cell)(const float* x, const float* g, const float* bias, float* h, int64_t n);
  // One step of an LSTM for one row of n units: c = f * c + i * tanh(x_g + g_g), h = o * tanh(c)
  // with i, f, o = sigmoid(x + g).  x and g hold 4 * n values in the order i, f, g, o.  g is what h
  // gives, biases included.
  void (*lstm_cell)(const float* x, const float* g, float* c, float* h, int64_t n);
  // Adds to the four sums those of NH (UMAC; Black, Halevi, Krawczyk, Krovetz, Rogaway, 1999): of
  // two different data of as many bytes all four are equal for one of 2^128 secrets.  They depend
  // on the instruction set only in how fast they come: faster with a secret aligned to blocks.
  // Where bytes are left behind whole blocks, the last 64 are the last block; fewer than 64 in all
  // are filled up with zeros.
  void (*hash)(const void* data, int64_t bytes, const uint32_t* secret, uint64_t* sums);
};

const KernelTable& PortableKernels();
const KernelTable& NeonKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();

// REQUIRES: `isa` is supported by this machine.
const KernelTable& KernelsOf(Isa isa);
// Of ActiveIsa() (isa.h).
const KernelTable& Kernels();

// See RoundRows in low_precision.h.
struct RoundArgs {
  const FcBlock* blocks;
  int64_t block_count;
  int64_t rows;
  float* x;
  int64_t x_stride;
  float* ranges;
};

// What there is for matrices in bf16 or in int8 (see MatrixView::precision).
struct LowTable {
  // As in KernelTable.  Activations are as exact as bf16 warrants: sigmoids within 1.3e-4.
  void (*fc)(const FcArgs& args);
  void (*round)(const RoundArgs& args);
  // In bf16: see PairRows in low_precision.h.
  void (*pair_rows)(const MatrixView& from, float* to);
};

const LowTable& Bf16Kernels();
const LowTable& Int8Avx512Kernels();
const LowTable& Int8Avx2Kernels();
const LowTable& Bf16AmxKernels();
const LowTable& Int8AmxKernels();

// REQUIRES: Has(precision) (low_precision.h); kBf16 or kInt8.
const LowTable& LowKernelsOf(Precision precision);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_TABLE_H_
