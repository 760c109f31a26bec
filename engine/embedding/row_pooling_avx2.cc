// RowPooling for processors with AVX2; compiled with -mavx2, without FMA, so that the results are
// those of PortableRowPooling.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_pooling.h"

#if defined(__x86_64__)
#include "engine/embedding/row_pooling_loops.h"

namespace ulfd::engine {

const RowPoolings& Avx2RowPooling() { return kRowPoolings; }

}  // namespace ulfd::engine
#endif
