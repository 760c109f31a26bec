// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

#include <omp.h>

#include "oneapi/dnnl/dnnl.h"

namespace ulfd::engine {
namespace {

// Primitives that nobody has any more stay in oneDNN's cache, 1024 of them unless told otherwise:
// requests with images of ever new sizes filled it with hundreds of megabytes.  Layers of equal
// sizes share with as few.
void KeepFewPrimitives() {
  constexpr int kMost = 64;
  static const dnnl_status_t set = dnnl_set_primitive_cache_capacity(kMost);
  static_cast<void>(set);
}

}  // namespace

void UseOneThread() { omp_set_num_threads(1); }

bool UsesOneThread() { return omp_get_max_threads() == 1; }

OneThread::OneThread() : before_(omp_get_max_threads()) {
  KeepFewPrimitives();  // One is about to be made.
  UseOneThread();
}
OneThread::~OneThread() { omp_set_num_threads(before_); }

}  // namespace ulfd::engine
