// Operands of products in bf16.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/bf16.h"

#include "engine/kernels/fc.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {

#if !defined(__x86_64__)
const Bf16Table& Bf16Kernels() {
  static constexpr Bf16Table kNone = {};
  return kNone;
}
#endif

absl::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kAuto:
      return "auto";
  }
  return "";
}

bool HasBf16() {
#if defined(__x86_64__)
  static const bool has = ActiveIsa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

void ToBf16(const float* x, int64_t stride, int64_t rows, int64_t k, float* to) {
  Bf16Kernels().round(x, stride, rows, k, to);
}

MatrixView PairRows(const MatrixView& from, float* to) {
  Bf16Kernels().pair_rows(from, to);
  MatrixView view = PackedMatrix::ViewOf(to, Bf16Pairs(from.k), from.n);
  view.bf16 = true;
  return view;
}

}  // namespace ulfd::engine
