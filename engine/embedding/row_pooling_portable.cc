// RowPooling for any processor.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_pooling.h"
#include "engine/embedding/row_pooling_loops.h"

namespace ulfd::engine {

RowPooling PortableRowPooling() { return kRowPooling; }

#if !defined(__x86_64__)
RowPooling Avx2RowPooling() { return kRowPooling; }
#endif

RowPooling BestRowPooling() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return Avx2RowPooling();
#endif
  return PortableRowPooling();
}

}  // namespace ulfd::engine
