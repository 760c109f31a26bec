// The one place that talks to oneDNN: GEMM and elementwise functions, OpenMP threads, and the only
// catch of dnnl::error. SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_ONEDNN_H_
#define ULFD_ENGINE_TENSOR_ONEDNN_H_

#include <cstdint>

#include "absl/status/status.h"

namespace ulfd::engine {

// Gives the calling thread one OpenMP thread.  Every thread that runs a kernel calls this first:
// Debian's oneDNN is built on OpenMP and, with OMP_THREAD_LIMIT or OMP_DYNAMIC set, silently leaves
// output unwritten otherwise.
void UseOneThread();
// Whether UseOneThread has taken effect on the calling thread.
bool UsesOneThread();

// Row-major C[m, n] = A x B (+ C if accumulate), where A is [m, k], or [k, m] if transpose_a, and
// likewise B; ld* are row strides in floats.  Any size may be 0 (k = 0 gives zeros).  REQUIRES:
// UsesOneThread().
absl::Status Gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                  const float* a, int64_t lda, const float* b, int64_t ldb, bool accumulate,
                  float* c, int64_t ldc);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_ONEDNN_H_
