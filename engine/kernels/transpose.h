// Matrices laid out the other way.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TRANSPOSE_H_
#define ULFD_ENGINE_KERNELS_TRANSPOSE_H_

#include <cstdint>

#include "engine/kernels/isa.h"

namespace ulfd::engine {

// to[j * to_step + i] = from[i * from_step + j] for i < rows and j < columns.  Steps are in floats;
// nothing overlaps.  Thread-safe; allocates nothing.
void Transpose(const float* from, int64_t from_step, int64_t rows, int64_t columns, float* to,
               int64_t to_step, Isa isa = ActiveIsa());

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_TRANSPOSE_H_
