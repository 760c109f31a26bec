// The cell of a GRU.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_GRU_BODY_H_
#define ULFD_ENGINE_KERNELS_GRU_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/types.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// load(p) and store(v, p) of one or two vectors at `j`.
template <class LoadFn, class StoreFn>
[[gnu::always_inline]] inline void GruCellAt(const float* x, const float* g, const float* bias,
                                             float* h, int64_t n, int64_t j, LoadFn load,
                                             StoreFn store) {
  const auto reset = Sigmoid(load(x + j) + load(g + j));
  const auto update = Sigmoid(load(x + n + j) + load(g + n + j));
  using T = decltype(load(x));
  const T candidate =
      Tanh(T::Fma(reset, load(g + 2 * n + j), load(x + 2 * n + j) + load(bias + j)));
  store(T::Fma(update, load(h + j) - candidate, candidate), h + j);
}

void GruCell(const float* x, const float* g, const float* bias, float* h, int64_t n) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  int64_t j = 0;
  for (; j + Two::kLanes <= full; j += Two::kLanes) {
    GruCellAt(
        x, g, bias, h, n, j, [](const float* p) { return Two::Load(p); },
        [](Two v, float* p) { v.Store(p); });
  }
  if (j < full) {
    GruCellAt(
        x, g, bias, h, n, j, [](const float* p) { return Vec::Load(p); },
        [](Vec v, float* p) { v.Store(p); });
  }
  if (full == n) return;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  GruCellAt(
      x, g, bias, h, n, full, [mask](const float* p) { return Vec::LoadMasked(p, mask); },
      [mask](Vec v, float* p) { v.StoreMasked(p, mask); });
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_GRU_BODY_H_
