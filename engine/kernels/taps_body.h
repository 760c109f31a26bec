// Sums of shifted rows, as in convolutions.  Included after a vec_*.h by the sources that table.h
// names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TAPS_BODY_H_
#define ULFD_ENGINE_KERNELS_TAPS_BODY_H_

#include "engine/kernels/table.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// kOutputs outputs, of which `outputs` are stored, of kVecs vectors at `x`: of the last one what
// load(p) and store(v, p) say.  The weights are those of TapArgs::w.
template <int kOutputs, int kVecs, class LoadFn, class StoreFn>
[[gnu::always_inline]] inline void TapTile(const TapArgs& a, const float* x, const float* w,
                                           const float* bias, int64_t outputs, float* y,
                                           LoadFn load, StoreFn store) {
  constexpr int64_t kLast = int64_t{kVecs - 1} * Vec::kLanes;
  Vec sums[kOutputs][kVecs];
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    const Vec first = bias == nullptr || o >= outputs ? Vec::Zero() : Vec::Set(bias[o]);
    for (int i = 0; i < kVecs; ++i) sums[o][i] = first;
  }
  for (int64_t t = 0; t < a.taps; ++t, w += TapArgs::kGroup) {
    const float* const from = x + a.offsets[t];
    const Vec last = load(from + kLast);
    const Vec before = kVecs == 1 ? last : Vec::Load(from);
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const Vec weight = Vec::Broadcast(w + o);
      sums[o][kVecs - 1] = Vec::Fma(weight, last, sums[o][kVecs - 1]);
      if (kVecs == 2) sums[o][0] = Vec::Fma(weight, before, sums[o][0]);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    if (o >= outputs) break;
    if (kVecs == 2) sums[o][0].Store(y + o * a.y_step);
    store(sums[o][kVecs - 1], y + o * a.y_step + kLast);
  }
}

// Some outputs of one row: two vectors of four outputs at a time, or one of eight.
inline void TapRow(const TapArgs& a, const float* x, const float* w, const float* bias,
                   int64_t outputs, float* y) {
  constexpr int64_t kLanes = Vec::kLanes;
  const auto load = [](const float* p) { return Vec::Load(p); };
  const auto store = [](Vec v, float* p) { v.Store(p); };
  const auto two = [&](int64_t at, auto load_last, auto store_last) __attribute__((always_inline)) {
    TapTile<4, 2>(a, x + at, w, bias, outputs, y + at, load_last, store_last);
    if (outputs <= 4) return;
    TapTile<4, 2>(a, x + at, w + 4, bias == nullptr ? nullptr : bias + 4, outputs - 4,
                  y + 4 * a.y_step + at, load_last, store_last);
  };
  int64_t j = 0;
  for (; j + 2 * kLanes <= a.n; j += 2 * kLanes) two(j, load, store);
  if (j == a.n) return;
  const int64_t left = (a.n - j) % kLanes;
  if (left == 0) return TapTile<8, 1>(a, x + j, w, bias, outputs, y + j, load, store);
  const Vec::Mask mask = Vec::MaskOf(left);
  const auto load_masked = [mask](const float* p) { return Vec::LoadMasked(p, mask); };
  const auto store_masked = [mask](Vec v, float* p) { v.StoreMasked(p, mask); };
  if (a.n - j > kLanes) return two(j, load_masked, store_masked);
  TapTile<8, 1>(a, x + j, w, bias, outputs, y + j, load_masked, store_masked);
}

void TapRows(const TapArgs& a) {
  const float* w = a.w;
  for (int64_t o = 0; o < a.outputs; o += TapArgs::kGroup, w += a.taps * TapArgs::kGroup) {
    for (int64_t i = 0; i < a.rows; ++i) {
      TapRow(a, a.x + i * a.x_step, w, a.bias == nullptr ? nullptr : a.bias + o, a.outputs - o,
             a.y + o * a.y_step + i * a.n);
    }
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_TAPS_BODY_H_
