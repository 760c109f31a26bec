// The one place that talks to oneDNN.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"

#include <omp.h>

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace ulfd::engine {

void UseOneThread() { omp_set_num_threads(1); }

bool UsesOneThread() { return omp_get_max_threads() == 1; }

absl::Status Gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                  const float* a, int64_t lda, const float* b, int64_t ldb, bool accumulate,
                  float* c, int64_t ldc) {
  assert(UsesOneThread());
  if (m == 0 || n == 0) return absl::OkStatus();
  if (k == 0) {
    for (int64_t i = 0; !accumulate && i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
    return absl::OkStatus();
  }
  try {
    const dnnl::status status =
        dnnl::sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb,
                    accumulate ? 1.0f : 0.0f, c, ldc);
    if (status == dnnl::status::success) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("oneDNN sgemm ", m, "x", n, "x", k, ": status ", static_cast<int>(status)));
  } catch (const dnnl::error& e) {
    return absl::InternalError(absl::StrCat("oneDNN sgemm: ", e.message));
  }
}

}  // namespace ulfd::engine
