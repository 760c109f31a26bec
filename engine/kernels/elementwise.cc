// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/elementwise.h"

#include "engine/kernels/table.h"

namespace ulfd::engine {

void Unary(UnaryOp op, const float* x, float* y, int64_t n, Isa isa) {
  KernelsOf(isa).unary(op, x, y, n);
}

void ApplyEpilogue(const Epilogue& epilogue, const float* x, int64_t x_stride, float* y,
                   int64_t y_stride, int64_t rows, int64_t n, Isa isa) {
  KernelsOf(isa).epilogue(epilogue, x, x_stride, y, y_stride, rows, n);
}

void ApplyPeriodic(const Epilogue& epilogue, int64_t period, const float* x, float* y, int64_t n,
                   Isa isa) {
  const int64_t rows = n / period, whole = rows * period;
  ApplyEpilogue(epilogue, x, period, y, period, rows, period, isa);
  if (whole == n) return;
  ApplyEpilogue(epilogue, x + whole, period, y + whole, period, 1, n - whole, isa);
}

void BinaryRows(BinaryOp op, const Strided& a, const Strided& b, float* y, int64_t y_stride,
                int64_t rows, int64_t n, Isa isa) {
  KernelsOf(isa).binary(op, a, b, y, y_stride, rows, n);
}

void WhereRows(const Strided& condition, const Strided& a, const Strided& b, float* y, int64_t rows,
               int64_t n, Isa isa) {
  KernelsOf(isa).where(condition, a, b, y, rows, n);
}

void Softmax(const float* x, float* y, int64_t outer, int64_t count, int64_t inner, Isa isa) {
  KernelsOf(isa).softmax(x, y, outer, count, inner, /*log=*/false);
}

void LogSoftmax(const float* x, float* y, int64_t outer, int64_t count, int64_t inner, Isa isa) {
  KernelsOf(isa).softmax(x, y, outer, count, inner, /*log=*/true);
}

void Reduce(ReduceOp op, const float* x, float* y, int64_t outer, int64_t count, int64_t inner,
            Isa isa) {
  KernelsOf(isa).reduce(op, x, y, outer, count, inner);
}

void BestPlaces(bool smallest, const float* x, float* places, int64_t outer, int64_t count,
                int64_t inner, Isa isa) {
  KernelsOf(isa).best_places(smallest, x, places, outer, count, inner);
}

void LayerNorm(const RowNorm& norm, const float* x, float* y, int64_t rows, int64_t n, Isa isa) {
  KernelsOf(isa).layer_norm(norm, x, y, rows, n);
}

void WeightedSum(const float* w, const float* v, int64_t stride, int64_t count, int64_t n, float* y,
                 Isa isa) {
  KernelsOf(isa).weighted_sum(w, v, stride, count, n, y);
}

float Dot(const float* a, const float* b, int64_t n, Isa isa) {
  return KernelsOf(isa).dot(a, b, n);
}

void RowProducts(const float* a, int64_t m, const float* b, int64_t n, int64_t k, float* y,
                 Isa isa) {
  KernelsOf(isa).row_products(a, m, b, n, k, y);
}

void TapRows(const TapArgs& args, Isa isa) { KernelsOf(isa).tap_rows(args); }

void GruCell(const float* x, const float* g, const float* bias, float* h, int64_t n, Isa isa) {
  KernelsOf(isa).gru_cell(x, g, bias, h, n);
}

void LstmCell(const float* x, const float* g, float* c, float* h, int64_t n, Isa isa) {
  KernelsOf(isa).lstm_cell(x, g, c, h, n);
}

}  // namespace ulfd::engine
