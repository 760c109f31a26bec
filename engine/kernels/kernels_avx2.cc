// The kernels for AVX2 and FMA.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx2.h"
//
#include "engine/kernels/table_body.h"

namespace ulfd::engine {

const KernelTable& Avx2Kernels() { return kTable; }

}  // namespace ulfd::engine
