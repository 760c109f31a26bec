// Products of bytes.  Included by the sources that table.h names, after MultiplyAdd and what else a
// row takes: StoreBytes, LeastOf, MostOf, SumOf.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_INT8_BODY_H_
#define ULFD_ENGINE_KERNELS_INT8_BODY_H_

#include "engine/kernels/fc_body.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// Byte b of a row stands for (b - zero) * step.
struct ByteRange {
  float step, zero;
};

// Of the blocks of row r.  0 is in the range, so that it stays 0: many rows hold many zeros.
inline ByteRange RangeOf(const RoundArgs& a, int64_t r) {
  Vec least = Vec::Zero(), most = Vec::Zero(), nothing = Vec::Zero();
  const auto add = [&](Vec x) {
    least = Vec::Min(x, least);
    most = Vec::Max(x, most);
    nothing = Vec::Fma(x, Vec::Zero(), nothing);  // NaN if x is not finite.
  };
  for (int64_t i = 0; i < a.block_count; ++i) {
    const float* x = a.blocks[i].x + r * a.blocks[i].stride;
    const int64_t k = a.blocks[i].k, full = k / Vec::kLanes * Vec::kLanes;
    for (int64_t j = 0; j < full; j += Vec::kLanes) add(Vec::Load(x + j));
    if (full < k) add(Vec::LoadMasked(x + full, Vec::MaskOf(k - full)));
  }
  constexpr float kMin = 1.17549435e-38f;  // A normal number, as is its reciprocal.
  const float step = MostOf(most) / 255 - LeastOf(least) / 255 + SumOf(nothing);
  if (step < kMin) return {0, 0};
  return {step, __builtin_rintf(-LeastOf(least) / step)};
}

void Round(const RoundArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const ByteRange range = RangeOf(a, r);
    a.ranges[2 * r] = range.step;
    a.ranges[2 * r + 1] = -range.zero * range.step;
    const Vec inverse = Vec::Set(range.step > 0 ? 1 / range.step : 0), zero = Vec::Set(range.zero);
    float* to = a.x + r * a.x_stride;
    for (int64_t i = 0; i < a.block_count; ++i) {
      const float* x = a.blocks[i].x + r * a.blocks[i].stride;
      const int64_t k = a.blocks[i].k, full = k / Vec::kLanes * Vec::kLanes;
      uint8_t* const bytes = reinterpret_cast<uint8_t*>(to);
      for (int64_t j = 0; j < full; j += Vec::kLanes) {
        StoreBytes(Vec::Fma(Vec::Load(x + j), inverse, zero), bytes + j);
      }
      if (full < k) {
        const Vec rest = Vec::LoadMasked(x + full, Vec::MaskOf(k - full));
        StoreBytes(Vec::Fma(rest, inverse, zero), bytes + full);
      }
      to += (k + 3) / 4;
    }
  }
}

constexpr LowTable kTable = {.fc = &FcRows, .round = &Round, .pair_rows = nullptr};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_INT8_BODY_H_
