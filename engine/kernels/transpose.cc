// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/transpose.h"

#include "engine/kernels/table.h"

namespace ulfd::engine {

void Transpose(const float* from, int64_t from_step, int64_t rows, int64_t columns, float* to,
               int64_t to_step, Isa isa) {
  KernelsOf(isa).transpose(from, from_step, rows, columns, to, to_step);
}

}  // namespace ulfd::engine
