// The kernels for AVX-512F.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx512.h"
//
#include "engine/kernels/table_body.h"

namespace ulfd::engine {

const KernelTable& Avx512Kernels() { return kTable; }

}  // namespace ulfd::engine
