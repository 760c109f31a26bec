// The kernels for AMX.  See table.h for what must not be included here.
//
// A tile register holds 16 rows of 64 bytes: of y 16 x 16 sums, of x 16 rows by 16 floats along k,
// of a packed matrix 16 floats along k by a panel.  Up to four tiles of y, one below the other, are
// summed over all of k.  Each instruction sums 16 floats along k apart and adds that, whatever the
// other rows are, so that a row's bits depend on nothing else.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx512.h"

namespace ulfd::engine {
namespace {

constexpr bool kCoarse = true;

}  // namespace
}  // namespace ulfd::engine

#include "engine/kernels/epilogue_body.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kTile = 16;  // Rows of x and y, columns of y, floats along k.
constexpr int64_t kTiles = 4;  // Of y at once.
constexpr int64_t kFloat = sizeof(float);

// The operand of LDTILECFG.  Tiles 0 to 3: y; 4: x; 5: w; 6 and 7: what is left of x and w behind
// the last whole tile.
struct alignas(64) TileShapes {
  TileShapes(int64_t rows, int64_t k) {
    for (int tile = 0; tile <= 4; ++tile) Set(tile, rows, kTile);
    Set(5, kTile, kTile);
    if (k % kTile == 0) return;
    Set(6, rows, k % kTile);
    Set(7, k % kTile, kTile);
  }
  void Set(int tile, int64_t rows, int64_t floats) {
    tile_rows[tile] = static_cast<uint8_t>(rows);
    row_bytes[tile] = static_cast<uint16_t>(floats * kFloat);
  }
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t tile_rows[16] = {};
};

// Macros, as the intrinsics are: the numbers of tiles are part of the instruction.
#define MULTIPLY_ADD(y, x, w) \
  if constexpr (kInt8) {      \
    _tile_dpbusd(y, x, w);    \
  } else {                    \
    _tile_dpbf16ps(y, x, w);  \
  }
// y += x w, tile by tile, with the tiles for x and w.
#define MULTIPLY_TILES(x_tile, w_tile)     \
  _tile_loadd(w_tile, w, w_step);          \
  _tile_loadd(x_tile, x[0] + k, x_step);   \
  MULTIPLY_ADD(0, x_tile, w_tile)          \
  if (tiles > 1) {                         \
    _tile_loadd(x_tile, x[1] + k, x_step); \
    MULTIPLY_ADD(1, x_tile, w_tile)        \
  }                                        \
  if (tiles > 2) {                         \
    _tile_loadd(x_tile, x[2] + k, x_step); \
    MULTIPLY_ADD(2, x_tile, w_tile)        \
  }                                        \
  if (tiles > 3) {                         \
    _tile_loadd(x_tile, x[3] + k, x_step); \
    MULTIPLY_ADD(3, x_tile, w_tile)        \
  }

// The first row of the tile that has `row`: the last tile begins early, so that all are whole.
inline int64_t TileRow(const FcArgs& a, int64_t row) {
  return a.rows < kTile ? 0 : Least(row, a.rows - kTile);
}

// The sums [tiles][16, 16] of rows from `row` on by up to 16 columns.
template <bool kInt8>
void Sum(const FcArgs& a, int64_t row, int64_t tiles, const float* w, int64_t w_stride,
         float* sums) {
  const FcBlock& block = a.blocks[0];
  const float* x[kTiles];
  for (int64_t i = 0; i < tiles; ++i) x[i] = block.x + TileRow(a, row + i * kTile) * block.stride;
  const int64_t x_step = block.stride * kFloat, w_step = w_stride * kFloat;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  int64_t k = 0;
  for (; k + kTile <= a.k; k += kTile, w += kTile * w_stride) {
    MULTIPLY_TILES(4, 5)
  }
  if (k < a.k) {
    MULTIPLY_TILES(6, 7)
  }
  constexpr int64_t kStep = kTile * kFloat, kFloats = kTile * kTile;
  _tile_stored(0, sums, kStep);
  if (tiles > 1) _tile_stored(1, sums + kFloats, kStep);
  if (tiles > 2) _tile_stored(2, sums + 2 * kFloats, kStep);
  if (tiles > 3) _tile_stored(3, sums + 3 * kFloats, kStep);
}

// y = init + sums, or what sums of integers stand for, of up to 16 columns.
template <bool kInt8>
void Store(const FcArgs& a, int64_t row, int64_t end, int64_t column, const float* sums) {
  const Vec::Mask mask = Vec::MaskOf(Least(kTile, a.w.n - column));
  Vec scale, total;
  if constexpr (kInt8) {
    scale = Vec::LoadMasked(a.w.scales + column, mask);
    total = Vec::LoadMasked(a.w.scales + a.w.n + column, mask);
  }
  const bool one_start = a.init == nullptr || a.init_stride == 0;
  Vec start = Vec::Zero();
  if (a.init != nullptr && one_start) start = Vec::LoadMasked(a.init + column, mask);
  for (; row < end; ++row, sums += kTile) {
    if (!one_start) start = Vec::LoadMasked(InitRow(a, row) + column, mask);
    Vec y = Vec::Load(sums);
    if constexpr (kInt8) {
      const Vec step = Vec::Broadcast(a.ranges + 2 * row);
      const Vec least = Vec::Broadcast(a.ranges + 2 * row + 1);
      y = Vec::Fma(Vec::FromIntegers(y), step * scale, Vec::Fma(least, total, start));
    } else {
      y = start + y;
    }
    y.StoreMasked(a.y + row * a.y_stride + column, mask);
  }
}

template <bool kInt8>
void Fc(const FcArgs& a) {
  if (a.rows == 0 || a.w.n == 0) return;
  if (a.w.columns) return Bf16Kernels().fc(a);
  alignas(64) float sums[kTiles][kTile * kTile];
  const TileShapes shapes(Least(kTile, a.rows), a.k);
  asm volatile("" ::: "memory");  // The intrinsic claims to read less than it does.
  _tile_loadconfig(&shapes);
  for (int64_t row = 0; row < a.rows; row += kTiles * kTile) {
    const int64_t end = Least(row + kTiles * kTile, a.rows);
    const int64_t tiles = (end - row + kTile - 1) / kTile;
    for (int64_t column = 0; column < a.w.n; column += kTile) {
      // Of a narrow last panel the tiles have what comes next, too: columns that nobody reads.
      const bool whole = column + kTile <= a.w.n;
      const float* const w = a.w.data + column / kTile * a.w.panel_stride;
      Sum<kInt8>(a, row, tiles, w, whole ? a.w.row_stride : a.w.tail_row_stride, sums[0]);
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t first = row + i * kTile, above = first - TileRow(a, first);
        Store<kInt8>(a, first, Least(first + kTile, end), column, sums[i] + above * kTile);
      }
    }
    FinishInPlace(a.epilogue, a.y + row * a.y_stride, a.y_stride, end - row, a.w.n);
  }
  _tile_release();
}

}  // namespace

const LowTable& Bf16AmxKernels() {
  static const LowTable table = {
      .fc = &Fc<false>, .round = Bf16Kernels().round, .pair_rows = Bf16Kernels().pair_rows};
  return table;
}

const LowTable& Int8AmxKernels() {
  static const LowTable table = {
      .fc = &Fc<true>, .round = Int8Avx512Kernels().round, .pair_rows = nullptr};
  return table;
}

}  // namespace ulfd::engine
