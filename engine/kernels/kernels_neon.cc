// The kernels for Advanced SIMD of AArch64.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_neon.h"
//
#include "engine/kernels/table_body.h"

namespace ulfd::engine {

const KernelTable& NeonKernels() { return kTable; }

}  // namespace ulfd::engine
