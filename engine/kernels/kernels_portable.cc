// The kernels for any machine.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_portable.h"
//
#include "engine/kernels/table_body.h"

namespace ulfd::engine {

const KernelTable& PortableKernels() { return kTable; }

}  // namespace ulfd::engine
