// RowPooling for any processor.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_pooling.h"
#include "engine/embedding/row_pooling_loops.h"

namespace ulfd::engine {

const RowPoolings& PortableRowPooling() { return kRowPoolings; }

#if !defined(__x86_64__)
const RowPoolings& Avx2RowPooling() { return kRowPoolings; }
#endif

const RowPoolings& BestRowPooling() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return Avx2RowPooling();
#endif
  return PortableRowPooling();
}

}  // namespace ulfd::engine
