// Matrices laid out the other way.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_TRANSPOSE_BODY_H_
#define ULFD_ENGINE_KERNELS_TRANSPOSE_BODY_H_

#include <string.h>

#include "engine/kernels/table.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// Shuffles within each four floats: those across are slower.
using FourFloats = float __attribute__((vector_size(16)));
using EightFloats = float __attribute__((vector_size(32)));

inline FourFloats LowPairs(const FourFloats& a, const FourFloats& b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
inline FourFloats HighPairs(const FourFloats& a, const FourFloats& b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
inline FourFloats LowHalves(const FourFloats& a, const FourFloats& b) {
  return __builtin_shufflevector(a, b, 0, 1, 4, 5);
}
inline FourFloats HighHalves(const FourFloats& a, const FourFloats& b) {
  return __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
inline void LoadRow(const float* from, int64_t, FourFloats& to) { memcpy(&to, from, sizeof(to)); }

#if defined(__AVX2__)
inline EightFloats LowPairs(const EightFloats& a, const EightFloats& b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
}
inline EightFloats HighPairs(const EightFloats& a, const EightFloats& b) {
  return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
inline EightFloats LowHalves(const EightFloats& a, const EightFloats& b) {
  return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
}
inline EightFloats HighHalves(const EightFloats& a, const EightFloats& b) {
  return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
// Of two rows, four apart.
inline void LoadRow(const float* from, int64_t step, EightFloats& to) {
  FourFloats low, high;
  memcpy(&low, from, sizeof(low));
  memcpy(&high, from + 4 * step, sizeof(high));
  to = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}
using TileRows = EightFloats;
#else
using TileRows = FourFloats;
#endif

// As many rows as R has floats, four columns of each.
template <typename R>
[[gnu::always_inline]] inline void TransposeTile(const float* from, int64_t from_step, float* to,
                                                 int64_t to_step) {
  R a, b, c, d;
  LoadRow(from, from_step, a);
  LoadRow(from + from_step, from_step, b);
  LoadRow(from + 2 * from_step, from_step, c);
  LoadRow(from + 3 * from_step, from_step, d);
  const R low_ab = LowPairs(a, b), low_cd = LowPairs(c, d), high_ab = HighPairs(a, b),
          high_cd = HighPairs(c, d);
  const R columns[] = {LowHalves(low_ab, low_cd), HighHalves(low_ab, low_cd),
                       LowHalves(high_ab, high_cd), HighHalves(high_ab, high_cd)};
  for (int j = 0; j < 4; ++j) memcpy(to + j * to_step, &columns[j], sizeof(R));
}

void Transpose(const float* from, int64_t from_step, int64_t rows, int64_t columns, float* to,
               int64_t to_step) {
  // Some columns at a time, so that the lines of all rows stay in the first-level cache.
  constexpr int64_t kColumns = 16, kRows = sizeof(TileRows) / sizeof(float);
  for (int64_t begin = 0; begin < columns; begin += kColumns) {
    const int64_t end = Least(columns, begin + kColumns), whole = end - (end - begin) % 4;
    int64_t i = 0;
    for (; i + kRows <= rows; i += kRows) {
      for (int64_t j = begin; j < whole; j += 4) {
        TransposeTile<TileRows>(from + i * from_step + j, from_step, to + j * to_step + i, to_step);
      }
    }
    for (; i + 4 <= rows; i += 4) {
      for (int64_t j = begin; j < whole; j += 4) {
        TransposeTile<FourFloats>(from + i * from_step + j, from_step, to + j * to_step + i,
                                  to_step);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = row < i ? whole : begin; j < end; ++j) {
        to[j * to_step + row] = from[row * from_step + j];
      }
    }
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_TRANSPOSE_BODY_H_
