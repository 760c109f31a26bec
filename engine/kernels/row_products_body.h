// Products of rows with rows.  Included after a vec_*.h by the sources that table.h names.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ROW_PRODUCTS_BODY_H_
#define ULFD_ENGINE_KERNELS_ROW_PRODUCTS_BODY_H_

#include "engine/kernels/table.h"

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

constexpr int kProductRows = 4, kProductColumns = Vec::kAccumulators >= 16 ? 4 : 2;

// sums[c][r] = a[r] * b[c], of k products each.
inline void ProductTile(const float* const* a, const float* const* b, int64_t k,
                        float (&sums)[kProductColumns][kProductRows]) {
  Vec acc[kProductRows][kProductColumns];
  for (auto& row : acc) {
    for (Vec& sum : row) sum = Vec::Zero();
  }
  const auto add = [&](auto load) {
    Vec right[kProductColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kProductColumns; ++c) right[c] = load(b[c]);
#pragma GCC unroll 4
    for (int r = 0; r < kProductRows; ++r) {
      const Vec left = load(a[r]);
#pragma GCC unroll 4
      for (int c = 0; c < kProductColumns; ++c) acc[r][c] = Vec::Fma(left, right[c], acc[r][c]);
    }
  };
  int64_t i = 0;
  for (; i + Vec::kLanes <= k; i += Vec::kLanes) {
    add([i](const float* row) { return Vec::Load(row + i); });
  }
  if (i < k) {
    const Vec::Mask mask = Vec::MaskOf(k - i);
    add([i, mask](const float* row) { return Vec::LoadMasked(row + i, mask); });
  }
#pragma GCC unroll 4
  for (int c = 0; c < kProductColumns; ++c) {
    Vec::Sum4(acc[0][c], acc[1][c], acc[2][c], acc[3][c], sums[c]);
  }
}

void RowProducts(const float* a, int64_t m, const float* b, int64_t n, int64_t k, float* y) {
  const bool own = a == b && m == n;
  for (int64_t row = 0; row < m; row += kProductRows) {
    const float* left[kProductRows];
    for (int r = 0; r < kProductRows; ++r) left[r] = a + Least(row + r, m - 1) * k;
    for (int64_t column = own ? row : 0; column < n; column += kProductColumns) {
      const float* right[kProductColumns];
      for (int c = 0; c < kProductColumns; ++c) right[c] = b + Least(column + c, n - 1) * k;
      float sums[kProductColumns][kProductRows];
      ProductTile(left, right, k, sums);
      const int64_t rows = Least(kProductRows, m - row),
                    columns = Least(kProductColumns, n - column);
      const auto put = [&](int64_t height, int64_t width) {
        for (int64_t r = 0; r < height; ++r) {
          for (int64_t c = 0; c < width; ++c) y[(row + r) * n + column + c] = sums[c][r];
        }
        for (int64_t c = 0; own && c < width; ++c) {
          for (int64_t r = 0; r < height; ++r) y[(column + c) * n + row + r] = sums[c][r];
        }
      };
      if (rows == kProductRows && columns == kProductColumns) {
        put(kProductRows, kProductColumns);  // Known to the compiler.
      } else {
        put(rows, columns);
      }
    }
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_ROW_PRODUCTS_BODY_H_
