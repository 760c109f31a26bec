// Affines and activations of rows.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_
#define ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/types.h"

namespace ulfd::engine {
namespace {

// The epilogue of one or two vectors of columns that begin at `column`.
template <Activation::Kind kKind, bool kAffine, class T, class LoadFn>
[[gnu::always_inline]] inline T FinishVector(const Epilogue& e, T x, int64_t column, LoadFn load) {
  if constexpr (kAffine) {
    x = Centre(x, load(e.affine.mean + column), load(e.affine.scale + column),
               load(e.affine.beta + column));
  }
  return Activate<kKind>(e.activation, x, column, load);
}

// y = epilogue(x) for rows of n columns, the first of which is `column` to the parameters.  y may
// be x.
template <Activation::Kind kKind, bool kAffine>
void FinishRows(const Epilogue& e, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                int64_t rows, int64_t column, int64_t n) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  const auto load = [](const float* p) { return Vec::Load(p); };
  const auto load_two = [](const float* p) { return Two::Load(p); };
  const auto load_tail = [mask](const float* p) { return Vec::LoadMasked(p, mask); };
  for (int64_t r = 0; r < rows; ++r, x += x_stride, y += y_stride) {
    int64_t j = 0;
    for (; j + Two::kLanes <= full; j += Two::kLanes) {
      FinishVector<kKind, kAffine>(e, Two::Load(x + j), column + j, load_two).Store(y + j);
    }
    if (j < full) FinishVector<kKind, kAffine>(e, Vec::Load(x + j), column + j, load).Store(y + j);
    if (full == n) continue;
    FinishVector<kKind, kAffine>(e, Vec::LoadMasked(x + full, mask), column + full, load_tail)
        .StoreMasked(y + full, mask);
  }
}

using FinishFn = void(const Epilogue&, const float*, int64_t, float*, int64_t, int64_t, int64_t,
                      int64_t);

template <Activation::Kind kKind>
FinishFn* FinishOf(bool affine) {
  return affine ? &FinishRows<kKind, true> : &FinishRows<kKind, false>;
}

inline FinishFn* FinishOf(const Epilogue& e) {
  using Kind = Activation::Kind;
  const bool affine = e.affine.mean != nullptr;
  switch (e.activation.kind) {
    case Kind::kRelu:
      return FinishOf<Kind::kRelu>(affine);
    case Kind::kPrelu:
      return FinishOf<Kind::kPrelu>(affine);
    case Kind::kSigmoid:
      return FinishOf<Kind::kSigmoid>(affine);
    case Kind::kTanh:
      return FinishOf<Kind::kTanh>(affine);
    case Kind::kDice:
      return FinishOf<Kind::kDice>(affine);
    case Kind::kNone:
      break;
  }
  return FinishOf<Kind::kNone>(affine);
}

// Whether the epilogue changes nothing.
inline bool IsPlain(const Epilogue& e) {
  return e.affine.mean == nullptr && e.activation.kind == Activation::Kind::kNone;
}

void EpilogueRows(const Epilogue& e, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                  int64_t rows, int64_t n) {
  FinishOf(e)(e, x, x_stride, y, y_stride, rows, 0, n);
}

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_
