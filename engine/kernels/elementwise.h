// Elementwise functions, arithmetic, softmax, reductions and weighted sums over arrays.
//
// All functions are thread-safe, allocate nothing, take pointers of any alignment and read and
// write nothing outside of the arrays.  REQUIRES: `isa` is supported by this machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ELEMENTWISE_H_
#define ULFD_ENGINE_KERNELS_ELEMENTWISE_H_

#include <cstdint>

#include "engine/kernels/isa.h"
#include "engine/kernels/row_args.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {

// y[i] = op(x[i]) for i < n, within 2e-7 of the exact value, relative, down to denormal results
// (there: within one denormal step); portable and kErf: 3e-7; kLog within 2 ulp, kSin and kCos
// within 2e-7.
// NaN gives NaN; infinities give the limits.  A value has the same bits wherever it stands.  y may
// be x.
void Unary(UnaryOp op, const float* x, float* y, int64_t n, Isa isa = ActiveIsa());

// y = epilogue(x) for rows of n columns, x_stride and y_stride floats apart.  y may be x.
void ApplyEpilogue(const Epilogue& epilogue, const float* x, int64_t x_stride, float* y,
                   int64_t y_stride, int64_t rows, int64_t n, Isa isa = ActiveIsa());

// y[i] = epilogue(x[i]) for i < n, where i % period is the column.  y may be x.
void ApplyPeriodic(const Epilogue& epilogue, int64_t period, const float* x, float* y, int64_t n,
                   Isa isa = ActiveIsa());

// y[r * y_stride + j] = a(r, j) op b(r, j) for r < rows, j < n.  y may be an operand.
void BinaryRows(BinaryOp op, const Strided& a, const Strided& b, float* y, int64_t y_stride,
                int64_t rows, int64_t n, Isa isa = ActiveIsa());

// y[r * n + j] = condition(r, j) > 0 ? a(r, j) : b(r, j), likewise.
void WhereRows(const Strided& condition, const Strided& a, const Strided& b, float* y, int64_t rows,
               int64_t n, Isa isa = ActiveIsa());

// Softmax over the middle axis of [outer, count, inner]; inner 1: over rows.  The maximum is
// subtracted first; weights that underflow are exactly 0.  y may be x.
void Softmax(const float* x, float* y, int64_t outer, int64_t count, int64_t inner,
             Isa isa = ActiveIsa());
// Its logarithm, x - max - log(sum(exp(x - max))), likewise.
void LogSoftmax(const float* x, float* y, int64_t outer, int64_t count, int64_t inner,
                Isa isa = ActiveIsa());

// y [outer, inner] = the middle axis of [outer, count, inner] by the operation; sums in parts.
void Reduce(ReduceOp op, const float* x, float* y, int64_t outer, int64_t count, int64_t inner,
            Isa isa = ActiveIsa());
// The places of the largest or smallest entries, likewise, of equal ones the first; NaN counts as
// the worst of numbers.
void BestPlaces(bool smallest, const float* x, float* places, int64_t outer, int64_t count,
                int64_t inner, Isa isa = ActiveIsa());

// y = (x - mean) / sqrt(mean of (x - mean)^2 + eps) * scale + shift for rows of n values, each with
// its own mean, which is 0 if not `centred`.  y may be x.
void LayerNorm(const RowNorm& norm, const float* x, float* y, int64_t rows, int64_t n,
               Isa isa = ActiveIsa());

// y[e] = sum of w[t] * v[t * stride + e] over t < count, for e < n.
void WeightedSum(const float* w, const float* v, int64_t stride, int64_t count, int64_t n, float* y,
                 Isa isa = ActiveIsa());

// Sum of a[i] * b[i].
float Dot(const float* a, const float* b, int64_t n, Isa isa = ActiveIsa());

// y[i, j] = the product of row i of a, [m, k], with row j of b, [n, k].  If these are one matrix,
// each pair is computed once.
void RowProducts(const float* a, int64_t m, const float* b, int64_t n, int64_t k, float* y,
                 Isa isa = ActiveIsa());

// y[o, i, j] = bias[o] + the sum over t of w[o, t] * x[i, j + offsets[t]], for n columns j.
void TapRows(const TapArgs& args, Isa isa = ActiveIsa());

// One step of a GRU for one row of n units: h = c + z * (h - c) with r = sigmoid(x_r + g_r), z =
// sigmoid(x_z + g_z), c = tanh(x_c + bias + r * g_c), where x and g hold 3 * n values in the order
// r, z, c (g: what h gives, biases included).
void GruCell(const float* x, const float* g, const float* bias, float* h, int64_t n,
             Isa isa = ActiveIsa());

// One step of an LSTM for one row of n units: c = f * c + i * tanh(x_g + g_g), h = o * tanh(c) with
// i, f, o = sigmoid(x + g).  x and g hold 4 * n values in the order i, f, g, o.  g is what h gives,
// biases included.
void LstmCell(const float* x, const float* g, float* c, float* h, int64_t n, Isa isa = ActiveIsa());

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_ELEMENTWISE_H_
