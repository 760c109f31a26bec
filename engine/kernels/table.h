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

struct KernelTable {
  void (*fc)(const FcArgs& args);
  // y[i] = op(x[i]).
  void (*unary)(UnaryOp op, const float* x, float* y, int64_t n);
  // Rows of n columns.
  void (*epilogue)(const Epilogue& epilogue, const float* x, int64_t x_stride, float* y,
                   int64_t y_stride, int64_t rows, int64_t n);
  // See BinaryRows and WhereRows in elementwise.h.
  void (*binary)(BinaryOp op, const Strided& a, const Strided& b, float* y, int64_t y_stride,
                 int64_t rows, int64_t n);
  void (*where)(const Strided& condition, const Strided& a, const Strided& b, float* y,
                int64_t rows, int64_t n);
  void (*softmax)(const float* x, float* y, int64_t outer, int64_t count, int64_t inner, bool log);
  // See Reduce and BestPlaces in elementwise.h.
  void (*reduce)(ReduceOp op, const float* x, float* y, int64_t outer, int64_t count,
                 int64_t inner);
  void (*best_places)(bool smallest, const float* x, float* places, int64_t outer, int64_t count,
                      int64_t inner);
  void (*layer_norm)(const RowNorm& norm, const float* x, float* y, int64_t rows, int64_t n);
  // y[e] = sum over t of w[t] * v[t * stride + e].
  void (*weighted_sum)(const float* w, const float* v, int64_t stride, int64_t count, int64_t n,
                       float* y);
  void (*dot_product_attention)(const DotProductArgs& args, float* scratch);
  // b = wk + diag(q) * wp for matrices of one packed layout; wk may be null.
  void (*scale_rows)(const MatrixView& wk, const MatrixView& wp, const float* q, float* b);
  float (*dot)(const float* a, const float* b, int64_t n);
  // See RowProducts in elementwise.h.
  void (*row_products)(const float* a, int64_t m, const float* b, int64_t n, int64_t k, float* y);
  // See TapRows in elementwise.h.
  void (*tap_rows)(const TapArgs& args);
  // See transpose.h.
  void (*transpose)(const float* from, int64_t from_step, int64_t rows, int64_t columns, float* to,
                    int64_t to_step);
  // See GruCell and LstmCell in elementwise.h.
  void (*gru_cell)(const float* x, const float* g, const float* bias, float* h, int64_t n);
  void (*lstm_cell)(const float* x, const float* g, float* c, float* h, int64_t n);
  // See AddHash in hash.h.
  void (*hash)(const void* data, int64_t bytes, const uint32_t* secret, uint64_t* sums);
};

const KernelTable& PortableKernels();
const KernelTable& NeonKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();

// REQUIRES: `isa` is supported by this machine.
const KernelTable& KernelsOf(Isa isa);

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
