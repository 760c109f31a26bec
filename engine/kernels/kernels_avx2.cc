// The kernels for AVX2 and FMA.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx2.h"
//
#include "engine/kernels/blocks_body.h"
#include "engine/kernels/elementwise_body.h"
#include "engine/kernels/fc_body.h"
#include "engine/kernels/gru_body.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {
namespace {

constexpr KernelTable kTable = {
    .fc = &FcRows,
    .unary = &Unary,
    .epilogue = &EpilogueRows,
    .binary = &Binary,
    .softmax = &Softmax,
    .weighted_sum = &WeightedSum,
    .scale_rows = &ScaleRows,
    .dot = &Dot,
    .blocks = &Blocks,
    .gru_cell = &GruCell,
};

}  // namespace

const KernelTable& Avx2Kernels() { return kTable; }

}  // namespace ulfd::engine
