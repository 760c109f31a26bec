// Programs over rows of values: the way to the kernels.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/blocks.h"

#include "engine/kernels/table.h"

namespace ulfd::engine {

void RunBlocks(absl::Span<BlockStep> steps, int64_t rows, int64_t n, Isa isa) {
  KernelsOf(isa).blocks(steps.data(), static_cast<int64_t>(steps.size()), rows, n);
}

}  // namespace ulfd::engine
