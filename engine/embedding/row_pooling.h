// The inner loops of pooling: rows of floats -> sums, averages and slots, all in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_POOLING_H_
#define ULFD_ENGINE_EMBEDDING_ROW_POOLING_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/embedding/row_format.h"

namespace ulfd::engine {

// Some rows of an output and the looked-up rows of their ids.
struct PoolingRun {
  const void* const* rows = nullptr;  // Per id, of one format; nullptr: zeros.
  const float* values = nullptr;      // Per id; nullptr: all 1.
  const int32_t* segments = nullptr;  // Ids per row.
  size_t row_count = 0;
  int64_t dim = 0;
  int64_t column = 0, columns = 0;  // Of the rows, those that are pooled: the first, how many.
  int64_t most = 0;                 // Ids of a row that count.
  bool keep_last = false;           // Those at the end of the row count.
  float* out = nullptr;             // Row 0.
  int64_t stride = 0;               // Floats.
};

// One set of loops per instruction set and format of rows.  Instruction sets give the same bits: a
// product and a sum are rounded one after the other, in the order of the ids.
struct RowPooling {
  void (*sum)(const PoolingRun& run) = nullptr;
  void (*avg)(const PoolingRun& run) = nullptr;
  void (*assign)(const PoolingRun& run) = nullptr;  // run.most slots.
};

using RowPoolings = std::array<RowPooling, kRowFormats>;  // By RowFormat.

const RowPoolings& PortableRowPooling();
// REQUIRES: a processor with AVX2.  No wider set: 512-bit registers would gain nothing
// where every row comes from memory.
const RowPoolings& Avx2RowPooling();
// What suits the processor.
const RowPoolings& BestRowPooling();

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_POOLING_H_
