// Programs over rows of values, run block by block: what a formula makes of its operands, without a
// pass over memory per operator.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_BLOCKS_H_
#define ULFD_ENGINE_KERNELS_BLOCKS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {

// Runs all steps on each block of up to BlockOperand::kPlaceFloats values of each row.  Values have
// the same bits wherever they stand in a block.  Nothing is read or written behind the n values of
// a row; a row is stored before the next one is read.  Moves the operands on: `steps` can be used
// once.  Thread-safe; allocates nothing.  REQUIRES: the first step is one of kLoad*.
void RunBlocks(absl::Span<BlockStep> steps, int64_t rows, int64_t n, Isa isa = ActiveIsa());

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_BLOCKS_H_
