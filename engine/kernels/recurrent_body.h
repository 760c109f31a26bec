// The cells of recurrent layers.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_RECURRENT_BODY_H_
#define ULFD_ENGINE_KERNELS_RECURRENT_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/types.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// fn(j, load, store) for all units, some at a time: load(p) and store(v, p) of one or two vectors.
template <class Fn>
[[gnu::always_inline]] inline void ForUnits(int64_t n, Fn fn) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  int64_t j = 0;
  for (; j + Two::kLanes <= full; j += Two::kLanes) {
    fn(
        j, [](const float* p) { return Two::Load(p); }, [](Two v, float* p) { v.Store(p); });
  }
  if (j < full) {
    fn(
        j, [](const float* p) { return Vec::Load(p); }, [](Vec v, float* p) { v.Store(p); });
  }
  if (full == n) return;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  fn(
      full, [mask](const float* p) { return Vec::LoadMasked(p, mask); },
      [mask](Vec v, float* p) { v.StoreMasked(p, mask); });
}

void GruCell(const float* x, const float* g, const float* bias, float* h, int64_t n) {
  ForUnits(
      n, [&](int64_t j, auto load, auto store) __attribute__((always_inline)) {
        const auto reset = Sigmoid(load(x + j) + load(g + j));
        const auto update = Sigmoid(load(x + n + j) + load(g + n + j));
        using T = decltype(load(x));
        const T candidate =
            Tanh(T::Fma(reset, load(g + 2 * n + j), load(x + 2 * n + j) + load(bias + j)));
        store(T::Fma(update, load(h + j) - candidate, candidate), h + j);
      });
}

void LstmCell(const float* x, const float* g, float* c, float* h, int64_t n) {
  ForUnits(
      n, [&](int64_t j, auto load, auto store) __attribute__((always_inline)) {
        const auto input = Sigmoid(load(x + j) + load(g + j));
        const auto forget = Sigmoid(load(x + n + j) + load(g + n + j));
        const auto candidate = Tanh(load(x + 2 * n + j) + load(g + 2 * n + j));
        using T = decltype(load(x));
        const T cell = T::Fma(forget, load(c + j), input * candidate);
        store(cell, c + j);
        store(Sigmoid(load(x + 3 * n + j) + load(g + 3 * n + j)) * Tanh(cell), h + j);
      });
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_RECURRENT_BODY_H_
