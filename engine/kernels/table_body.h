// The table of the kernels over the vector type that is included before this: see table.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TABLE_BODY_H_
#define ULFD_ENGINE_KERNELS_TABLE_BODY_H_

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// What the sources for low precisions have otherwise.
constexpr bool kCoarse = false, kInt8 = false;
inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) { return Vec::Fma(a, b, sum); }

}  // namespace
}  // namespace ulfd::engine

#include "engine/kernels/dot_product_body.h"
#include "engine/kernels/elementwise_body.h"
#include "engine/kernels/fc_body.h"
#include "engine/kernels/hash_body.h"
#include "engine/kernels/recurrent_body.h"
#include "engine/kernels/reduce_body.h"
#include "engine/kernels/row_products_body.h"
#include "engine/kernels/table.h"
#include "engine/kernels/taps_body.h"
#include "engine/kernels/transpose_body.h"

namespace ulfd::engine {
namespace {

constexpr KernelTable kTable = {
    .fc = &FcRows,
    .unary = &Unary,
    .epilogue = &EpilogueRows,
    .binary = &Binary,
    .where = &Where,
    .softmax = &Softmax,
    .reduce = &ReduceAxis,
    .best_places = &BestPlaces,
    .layer_norm = &LayerNorm,
    .weighted_sum = &WeightedSum,
    .dot_product_attention = &DotProductAttention,
    .scale_rows = &ScaleRows,
    .dot = &Dot,
    .row_products = &RowProducts,
    .tap_rows = &TapRows,
    .transpose = &Transpose,
    .gru_cell = &GruCell,
    .lstm_cell = &LstmCell,
    .hash = &HashBytes,
};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_TABLE_BODY_H_
