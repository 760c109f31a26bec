// The kernels for AVX512-BF16.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx512.h"

namespace ulfd::engine {
namespace {

constexpr bool kCoarse = true, kInt8 = false;

// sum + a0 * b0 + a1 * b1 of the pairs in each lane.
inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) {
  return {_mm512_dpbf16_ps(sum.v, __builtin_bit_cast(__m512bh, a.v),
                           __builtin_bit_cast(__m512bh, b.v))};
}

}  // namespace
}  // namespace ulfd::engine

#include "engine/kernels/fc_body.h"

namespace ulfd::engine {
namespace {

// The numbers of `low`, then those of `high`.
inline __m512i Rounded(Vec low, Vec high) {
  return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(high.v, low.v));
}
inline Vec AsVec(__m512i bits) { return {_mm512_castsi512_ps(bits)}; }

// Rounds rows of k floats to rows of (k + 1) / 2.
class RowRounding {
 public:
  explicit RowRounding(int64_t k)
      : full_(k / (2 * kLanes) * (2 * kLanes)),
        rest_(k - full_),
        low_(Vec::MaskOf(Least(rest_, kLanes))),
        high_(Vec::MaskOf(rest_ > kLanes ? rest_ - kLanes : 0)),
        pairs_(Vec::MaskOf((rest_ + 1) / 2)) {}
  void operator()(const float* x, float* to) const {
    for (int64_t i = 0; i < full_; i += 2 * kLanes) {
      AsVec(Rounded(Vec::Load(x + i), Vec::Load(x + i + kLanes))).Store(to + i / 2);
    }
    if (rest_ == 0) return;
    const Vec low = Vec::LoadMasked(x + full_, low_);
    const Vec high = Vec::LoadMasked(x + full_ + kLanes, high_);
    AsVec(Rounded(low, high)).StoreMasked(to + full_ / 2, pairs_);
  }

 private:
  static constexpr int64_t kLanes = Vec::kLanes;
  const int64_t full_, rest_;
  const Vec::Mask low_, high_, pairs_;
};

void Round(const RoundArgs& a) {
  float* to = a.x;
  for (int64_t i = 0; i < a.block_count; ++i) {
    const FcBlock& block = a.blocks[i];
    const RowRounding round(block.k);
    for (int64_t r = 0; r < a.rows; ++r) round(block.x + r * block.stride, to + r * a.x_stride);
    to += (block.k + 1) / 2;
  }
}

// Two rows of up to 16 columns, number beside number.
alignas(64) constexpr uint16_t kBeside[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                              21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                              11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

void PairPanelRows(const MatrixView& from, float* to) {
  const __m512i beside = _mm512_load_si512(kBeside);
  const float* row = from.data;
  for (int64_t column = 0; column < from.n; column += MatrixView::kPanel) {
    const int64_t width =
        column + MatrixView::kPanel <= from.n ? from.row_stride : from.tail_row_stride;
    const Vec::Mask mask = Vec::MaskOf(width);
    for (int64_t i = 0; i < from.k; i += 2, row += 2 * width, to += width) {
      const Vec other = i + 1 < from.k ? Vec::LoadMasked(row + width, mask) : Vec::Zero();
      const __m512i both = Rounded(Vec::LoadMasked(row, mask), other);
      AsVec(_mm512_permutexvar_epi16(beside, both)).StoreMasked(to, mask);
    }
    if (from.k % 2 == 1) row -= width;
  }
}

void PairRowsOf(const MatrixView& from, float* to) {
  if (!from.columns) return PairPanelRows(from, to);
  const RowRounding round(from.k);
  for (int64_t j = 0; j < from.n; ++j) round(from.data + j * from.k, to + j * ((from.k + 1) / 2));
}

}  // namespace

const LowTable& Bf16Kernels() {
  static constexpr LowTable kBf16 = {.fc = &FcRows, .round = &Round, .pair_rows = &PairRowsOf};
  return kBf16;
}

}  // namespace ulfd::engine
