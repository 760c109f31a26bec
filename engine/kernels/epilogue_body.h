// Where sums start, affines and activations.  Included after a vec_*.h by the sources that table.h
// names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_
#define ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_

#include "engine/kernels/math_body.h"
#include "engine/kernels/table.h"
#include "engine/kernels/types.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// Where row r of the sums begins.
inline const float* InitRow(const FcArgs& a, int64_t r) {
  int64_t row = r;
  if (a.init_repeat > 1) row /= a.init_repeat;
  if (a.init_period > 0) row %= a.init_period;
  return a.init + row * a.init_stride;
}

// The epilogue of one or two vectors of columns that begin at `column`.
template <Activation::Kind kKind, bool kAffine, class T, class LoadFn>
[[gnu::always_inline]] inline T FinishVector(const Epilogue& e, T x, int64_t column, LoadFn load) {
  if constexpr (kAffine) {
    x = Centre(x, load(e.affine.mean + column), load(e.affine.scale + column),
               load(e.affine.beta + column));
  }
  return Activate<kKind>(e.activation, x, column, load);
}

// The columns [j, j + T::kLanes) of two rows, and of one.
template <Activation::Kind kKind, bool kAffine, class T>
[[gnu::always_inline]] inline void FinishPair(const Epilogue& e, const float* x, int64_t x_stride,
                                              float* y, int64_t y_stride, int64_t column) {
  const auto load = [](const float* p) {
    const T t = T::Load(p);
    return Pair<T>{t, t};
  };
  const Pair<T> done =
      FinishVector<kKind, kAffine>(e, Pair<T>{T::Load(x), T::Load(x + x_stride)}, column, load);
  done.a.Store(y);
  done.b.Store(y + y_stride);
}
template <Activation::Kind kKind, bool kAffine, class T>
[[gnu::always_inline]] inline void FinishOne(const Epilogue& e, const float* x, float* y,
                                             int64_t column) {
  const auto load = [](const float* p) { return T::Load(p); };
  FinishVector<kKind, kAffine>(e, T::Load(x), column, load).Store(y);
}

// y = epilogue(x) for rows of n columns.  y may be x.
template <Activation::Kind kKind, bool kAffine>
void FinishRows(const Epilogue& e, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                int64_t rows, int64_t n) {
  const int64_t full = n / Vec::kLanes * Vec::kLanes;
  const Vec::Mask mask = Vec::MaskOf(n - full);
  const auto load_tail = [mask](const float* p) { return Vec::LoadMasked(p, mask); };
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2, x += 2 * x_stride, y += 2 * y_stride) {
    int64_t j = 0;
    for (; j + Two::kLanes <= full; j += Two::kLanes) {
      FinishPair<kKind, kAffine, Two>(e, x + j, x_stride, y + j, y_stride, j);
    }
    if (j < full) FinishPair<kKind, kAffine, Vec>(e, x + j, x_stride, y + j, y_stride, j);
    if (full == n) continue;
    const auto load_tails = [&](const float* p) { return Two{load_tail(p), load_tail(p)}; };
    const Two tails = FinishVector<kKind, kAffine>(
        e, Two{load_tail(x + full), load_tail(x + x_stride + full)}, full, load_tails);
    tails.a.StoreMasked(y + full, mask);
    tails.b.StoreMasked(y + y_stride + full, mask);
  }
  if (r == rows) return;
  int64_t j = 0;
  for (; j + Four::kLanes <= full; j += Four::kLanes) {
    FinishOne<kKind, kAffine, Four>(e, x + j, y + j, j);
  }
  for (; j + Two::kLanes <= full; j += Two::kLanes) {
    FinishOne<kKind, kAffine, Two>(e, x + j, y + j, j);
  }
  if (j < full) FinishOne<kKind, kAffine, Vec>(e, x + j, y + j, j);
  if (full == n) return;
  FinishVector<kKind, kAffine>(e, load_tail(x + full), full, load_tail).StoreMasked(y + full, mask);
}

using FinishFn = void(const Epilogue&, const float*, int64_t, float*, int64_t, int64_t, int64_t);

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

void EpilogueRows(const Epilogue& e, const float* x, int64_t x_stride, float* y, int64_t y_stride,
                  int64_t rows, int64_t n) {
  FinishOf(e)(e, x, x_stride, y, y_stride, rows, n);
}

// Without parameters per column, rows without gaps are one long row.
void FinishInPlace(const Epilogue& e, float* y, int64_t y_stride, int64_t rows, int64_t n) {
  using Kind = Activation::Kind;
  if (e.affine.mean == nullptr) {
    const Kind kind = e.activation.kind;
    if (kind == Kind::kNone) return;
    if (y_stride == n && kind != Kind::kPrelu && kind != Kind::kDice) {
      return EpilogueRows(e, y, 0, y, 0, 1, rows * n);
    }
  }
  EpilogueRows(e, y, y_stride, y, y_stride, rows, n);
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_EPILOGUE_BODY_H_
