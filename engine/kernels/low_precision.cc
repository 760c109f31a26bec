// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/low_precision.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "engine/kernels/fc.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {
namespace {

#if defined(__x86_64__)
bool HasAvxVnni() {
  // Not every compiler's runtime knows it by name: leaf 7.1, EAX, bit 4.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}

// Null: this machine has none.
const LowTable* FindKernels(Precision precision) {
  if (ActiveIsa() == Isa::kAmx) {
    return precision == Precision::kInt8 ? &Int8AmxKernels() : &Bf16AmxKernels();
  }
  const bool avx512 = ActiveIsa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bw");
  if (precision != Precision::kInt8) {
    return avx512 && __builtin_cpu_supports("avx512bf16") ? &Bf16Kernels() : nullptr;
  }
  if (avx512 && __builtin_cpu_supports("avx512vnni")) return &Int8Avx512Kernels();
  return ActiveIsa() != Isa::kPortable && HasAvxVnni() ? &Int8Avx2Kernels() : nullptr;
}
#else
const LowTable* FindKernels(Precision) { return nullptr; }
#endif

const LowTable* FoundKernels(Precision precision) {
  static const LowTable* const bf16 = FindKernels(Precision::kBf16);
  static const LowTable* const int8 = FindKernels(Precision::kInt8);
  return precision == Precision::kInt8 ? int8 : bf16;
}

}  // namespace

const LowTable& LowKernelsOf(Precision precision) { return *FoundKernels(precision); }

absl::string_view Name(Precision precision) {
  static constexpr absl::string_view kNames[] = {"fp32", "auto", "bf16", "int8"};
  return kNames[static_cast<size_t>(precision)];
}

bool Has(Precision precision) {
  return precision == Precision::kFp32 || FoundKernels(precision) != nullptr;
}

absl::string_view InstructionsOf(Precision precision) {
  return precision == Precision::kInt8 ? "AVX512-VNNI or AVX-VNNI" : "AVX512-BF16";
}

void RoundRows(Precision precision, absl::Span<const FcBlock> blocks, int64_t rows,
               const RoundedRows& to) {
  LowKernelsOf(precision).round({.blocks = blocks.data(),
                                 .block_count = static_cast<int64_t>(blocks.size()),
                                 .rows = rows,
                                 .x = to.x,
                                 .x_stride = to.stride,
                                 .ranges = to.ranges});
}

MatrixView PairRows(const MatrixView& from, float* to) {
  LowKernelsOf(Precision::kBf16).pair_rows(from, to);
  MatrixView view = PackedMatrix::ViewOf(to, FloatsOf(Precision::kBf16, from.k), from.n);
  view.precision = Precision::kBf16;
  return view;
}

Int8Matrix FourRows(const float* data, int64_t k, int64_t n, int64_t row_stride,
                    int64_t column_stride) {
  Int8Matrix m{.fours = std::vector<float>(FloatsOf(Precision::kInt8, k) * n),
               .scales = std::vector<float>(2 * n)};
  for (int64_t j = 0; j < n; ++j) {
    const float* const column = data + j * column_stride;
    float most = 0;
    bool finite = true;
    for (int64_t i = 0; i < k; ++i) {
      most = std::max(most, std::abs(column[i * row_stride]));
      finite &= std::isfinite(column[i * row_stride]);
    }
    const float scale = most / 127;
    const bool rounds = finite && scale >= std::numeric_limits<float>::min();
    int64_t sum = 0;
    for (int64_t i = 0; rounds && i < k; i += 4) {
      int8_t four[4] = {};
      for (int64_t p = 0; p < std::min<int64_t>(4, k - i); ++p) {
        four[p] = static_cast<int8_t>(std::lrint(column[(i + p) * row_stride] / scale));
        sum += four[p];
      }
      std::memcpy(&m.fours[i / 4 * n + j], four, sizeof(four));
    }
    m.scales[j] = finite ? rounds ? scale : 0 : std::numeric_limits<float>::quiet_NaN();
    m.scales[n + j] = m.scales[j] * static_cast<float>(sum);
  }
  return m;
}

}  // namespace ulfd::engine
