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

// Which places of a vector are there.
struct AllPlaces {
  Vec Load(const float* p) const { return Vec::Load(p); }
  void Store(Vec v, float* p) const { v.Store(p); }
};
struct FirstPlaces {
  Vec::Mask mask;
  Vec Load(const float* p) const { return Vec::LoadMasked(p, mask); }
  void Store(Vec v, float* p) const { v.StoreMasked(p, mask); }
};

// Some outputs: up to TapArgs::kGroup, whose weights lie side by side.
struct TapOutputs {
  const float* w;
  const float* bias;  // Or null.
  int64_t count;
  TapOutputs Behind(int64_t n) const {
    return {w + n, bias == nullptr ? nullptr : bias + n, count - n};
  }
};

// How far behind the first vector the second lies, to read and to write.
struct TapStep {
  int64_t x, y;
};

// kOutputs outputs, or as many as there are, of kVecs vectors, the first at `x`.
template <int kOutputs, int kVecs, class First, class Last>
[[gnu::always_inline]] inline void TapTile(const TapArgs& a, const TapOutputs& outputs,
                                           const float* x, float* y, TapStep step, First first,
                                           Last last) {
  Vec sums[kOutputs][kVecs];
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o) {
    const bool biased = outputs.bias != nullptr && o < outputs.count;
    const Vec start = biased ? Vec::Set(outputs.bias[o]) : Vec::Zero();
    for (int i = 0; i < kVecs; ++i) sums[o][i] = start;
  }
  const float* w = outputs.w;
  for (int64_t t = 0; t < a.taps; ++t, w += TapArgs::kGroup) {
    const float* const from = x + a.offsets[t];
    const Vec one = first.Load(from);
    const Vec two = kVecs == 1 ? one : last.Load(from + step.x);
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const Vec weight = Vec::Broadcast(w + o);
      sums[o][0] = Vec::Fma(weight, one, sums[o][0]);
      if (kVecs == 2) sums[o][kVecs - 1] = Vec::Fma(weight, two, sums[o][kVecs - 1]);
    }
  }
#pragma GCC unroll 8
  for (int o = 0; o < kOutputs; ++o, y += a.y_step) {
    if (o >= outputs.count) break;
    first.Store(sums[o][0], y);
    if (kVecs == 2) last.Store(sums[o][kVecs - 1], y + step.y);
  }
}

// All outputs of two vectors, kOutputs at a time.
template <int kOutputs, class First, class Last>
[[gnu::always_inline]] inline void TapTwo(const TapArgs& a, const TapOutputs& outputs,
                                          const float* x, float* y, TapStep step, First first,
                                          Last last) {
  TapTile<kOutputs, 2>(a, outputs, x, y, step, first, last);
  if (outputs.count <= kOutputs) return;
  TapTile<kOutputs, 2>(a, outputs.Behind(kOutputs), x, y + kOutputs * a.y_step, step, first, last);
}

// One row: two vectors of kTwo outputs at a time, or one of kOne.
template <int kTwo, int kOne>
inline void TapRow(const TapArgs& a, const TapOutputs& outputs, const float* x, float* y) {
  constexpr int64_t kLanes = Vec::kLanes;
  constexpr TapStep kNext = {kLanes, kLanes};
  const AllPlaces all;
  int64_t j = 0;
  for (; j + 2 * kLanes <= a.n; j += 2 * kLanes) {
    TapTwo<kTwo>(a, outputs, x + j, y + j, kNext, all, all);
  }
  if (j == a.n) return;
  const int64_t left = (a.n - j) % kLanes;
  if (left == 0) return TapTile<kOne, 1>(a, outputs, x + j, y + j, {}, all, all);
  const FirstPlaces some = {Vec::MaskOf(left)};
  if (a.n - j > kLanes) return TapTwo<kTwo>(a, outputs, x + j, y + j, kNext, all, some);
  TapTile<kOne, 1>(a, outputs, x + j, y + j, {}, some, some);
}

template <int kTwo, int kOne>
inline void TapAllRows(const TapArgs& a, const TapOutputs& outputs, float* y) {
  const float* x = a.x;
  int64_t i = 0;
  // A vector of each of two rows, where one has no more.
  for (; a.n <= Vec::kLanes && i + 2 <= a.rows; i += 2, x += 2 * a.x_step, y += 2 * a.n) {
    const TapStep down = {a.x_step, a.n};
    if (a.n == Vec::kLanes) {
      TapTwo<kTwo>(a, outputs, x, y, down, AllPlaces(), AllPlaces());
    } else {
      const FirstPlaces some = {Vec::MaskOf(a.n)};
      TapTwo<kTwo>(a, outputs, x, y, down, some, some);
    }
  }
  for (; i < a.rows; ++i, x += a.x_step, y += a.n) TapRow<kTwo, kOne>(a, outputs, x, y);
}

void TapRows(const TapArgs& a) {
  TapOutputs outputs = {a.w, a.bias, a.outputs};
  // As where each channel is a group of its own.
  if (a.outputs == 1) return TapAllRows<1, 1>(a, outputs, a.y);
  for (int64_t o = 0; o < a.outputs; o += TapArgs::kGroup) {
    outputs = {a.w + o * a.taps, a.bias == nullptr ? nullptr : a.bias + o, a.outputs - o};
    TapAllRows<4, 8>(a, outputs, a.y + o * a.y_step);
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_TAPS_BODY_H_
