// Fully connected layers.  Included after a vec_*.h by the sources that table.h names.
//
// A tile of y (some rows by a few vectors of columns) is summed in registers over all of k, one
// chain of multiply-adds per value, in the order of k: only how many chains run side by side
// depends on the shape of the call.  Where k is long, the chains pause: the sums rest in y,
// exactly.  MultiplyAdd(a, b, sum) is up to the source that includes this: for low precisions a
// float of x and of w is several numbers along k (see MatrixView::precision), and with kInt8 the
// sums are integers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_FC_BODY_H_
#define ULFD_ENGINE_KERNELS_FC_BODY_H_

#include "engine/kernels/epilogue_body.h"
#include "engine/kernels/table.h"
#include "engine/kernels/types.h"

// Built once per instruction set; products of lanes are small.
// NOLINTBEGIN(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)
namespace ulfd::engine {
namespace {

constexpr int kPanelVecs = static_cast<int>(MatrixView::kPanel) / Vec::kLanes;
constexpr int kMaxVecs = 8;  // Per tile.
constexpr int kMaxPanels = kMaxVecs / kPanelVecs;
constexpr int PanelsOf(int vecs) { return (vecs + kPanelVecs - 1) / kPanelVecs; }

// Where a pass reads x: blocks side by side, from row `first_row` on.
struct Left {
  const FcBlock *first, *last;
  int64_t first_row;
  int64_t from, to;  // Columns of the first block where the pass begins, of the last where it ends.
  int64_t w_row;     // The row of w that column `from` meets.
};

// Columns [k_begin, k_end) of x, at least one.
inline Left LeftOf(const FcArgs& a, int64_t k_begin, int64_t k_end) {
  const FcBlock* block = a.blocks;
  int64_t k = 0, w_row = 0;  // Of the block's first column.
  for (;; ++block) {
    if (block->w_row != FcBlock::kNext) w_row = block->w_row;
    if (k + block->k > k_begin) break;
    k += block->k;
    w_row += block->k;
  }
  Left left{block, block, 0, k_begin - k, 0, w_row + k_begin - k};
  for (; k + left.last->k < k_end; ++left.last) k += left.last->k;
  left.to = k_end - k;
  return left;
}

// One pass over some rows, columns and part of k.
struct Pass {
  const FcArgs* args;
  Left left;
  bool resumes;  // An earlier pass left sums in y.
  bool rectify;  // The last part of k; relu or prelu without an affine follows.
  // The columns: `width` of them from `column` on, in up to kMaxPanels panels.
  int64_t column, width;
  const float* panels[kMaxPanels];  // At row 0.
  int64_t steps[kMaxPanels];        // From row to row.
  const float* next;                // What the pass after this one reads of w,
  int64_t next_floats;              // to be fetched meanwhile; 0: nothing.
  bool last_is_half;                // The last vector may be read only half, for 16 lanes.
  bool last_is_masked;              // The last vector may be read only as far as `width`.
};

// kPairs: half a vector, where the halves of two rows share one.
enum class LastVec { kFull, kPairs, kMasked };

// Vec, where kPairs needs what vectors of a whole panel alone have.
template <LastVec>
struct PanelVec : Vec {};

template <LastVec kLast>
[[gnu::always_inline]] inline Vec LoadLast(const float* p, Vec::Mask mask) {
  if constexpr (kLast == LastVec::kPairs) return PanelVec<kLast>::LoadTwice(p);
  if constexpr (kLast == LastVec::kMasked) return Vec::LoadMasked(p, mask);
  return Vec::Load(p);
}

// Sums of a tile while they grow.  With kPairs the last vectors of rows 2i and 2i + 1 are
// `tails[i]`.
template <int kRows, int kVecs, LastVec kLast>
struct Sums {
  static constexpr bool kPaired = kLast == LastVec::kPairs;
  static constexpr int kOwn = kPaired ? kVecs - 1 : kVecs;  // Vectors of one row alone.
  static constexpr int kTails = kPaired ? (kRows + 1) / 2 : 0;
  Vec own[kRows][kOwn > 0 ? kOwn : 1];
  Vec tails[kTails > 0 ? kTails : 1];

  [[gnu::always_inline]] void From(const Vec (&acc)[kRows][kVecs]) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kOwn; ++v) own[r][v] = acc[r][v];
    }
    if constexpr (kPaired) {
#pragma GCC unroll 6
      for (int i = 0; i < kTails; ++i) {
        tails[i] = PanelVec<kLast>::LowHalves(acc[2 * i][kOwn],
                                              acc[2 * i + 1 < kRows ? 2 * i + 1 : 2 * i][kOwn]);
      }
    }
  }
  [[gnu::always_inline]] void To(Vec (&acc)[kRows][kVecs]) const {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kOwn; ++v) acc[r][v] = own[r][v];
      if constexpr (kPaired)
        acc[r][kOwn] = r % 2 == 0 ? tails[r / 2] : PanelVec<kLast>::HighHalf(tails[r / 2]);
    }
  }
};

// Rows of a tile that are read from x; the lower ones have a pointer of their own, because offsets
// for twelve rows take more registers than there are.
constexpr int UpperRows(int rows) { return rows > 6 ? (rows + 1) / 2 : rows; }

// sums += the first column of x[rows, k] times a row of the panels, which moves these on.
template <int kRows, int kVecs, LastVec kLast>
[[gnu::always_inline]] inline void Step(const float* x, const float* lower, int64_t stride,
                                        const float* (&b)[PanelsOf(kVecs)],
                                        const int64_t (&steps)[PanelsOf(kVecs)], Vec::Mask mask,
                                        Sums<kRows, kVecs, kLast>& sums) {
  constexpr int kOwn = Sums<kRows, kVecs, kLast>::kOwn;
  Vec w[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const float* p = b[v / kPanelVecs] + v % kPanelVecs * Vec::kLanes;
    w[v] = v + 1 < kVecs ? Vec::Load(p) : LoadLast<kLast>(p, mask);
  }
  Vec even;
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    constexpr int kUpper = UpperRows(kRows);
    const Vec a = Vec::Broadcast(r < kUpper ? x + r * stride : lower + (r - kUpper) * stride);
#pragma GCC unroll 8
    for (int v = 0; v < kOwn; ++v) sums.own[r][v] = MultiplyAdd(a, w[v], sums.own[r][v]);
    if constexpr (kLast == LastVec::kPairs) {
      if (r % 2 == 0) even = a;
      if (r % 2 == 1 || r + 1 == kRows) {
        sums.tails[r / 2] =
            MultiplyAdd(PanelVec<kLast>::LowHigh(even, a), w[kOwn], sums.tails[r / 2]);
      }
    }
  }
  for (int p = 0; p < PanelsOf(kVecs); ++p) b[p] += steps[p];
}

// acc += x[rows, k] * panels[k, vecs], for k > 0: a loop that might be left out costs the compiler
// copies of all of acc.
template <int kRows, int kVecs, LastVec kLast>
[[gnu::always_inline]] inline void Accumulate(const float* x, int64_t stride, int64_t k,
                                              const float* (&b)[PanelsOf(kVecs)],
                                              const int64_t (&steps)[PanelsOf(kVecs)],
                                              Vec::Mask mask, Vec (&acc)[kRows][kVecs]) {
  Sums<kRows, kVecs, kLast> sums;
  sums.From(acc);
  const float* const end = x + k;
  const float* lower = x + UpperRows(kRows) * stride;
  asm("" : "+r"(lower));  // The compiler would make it offsets of x again.
  do {
    Step(x, lower, stride, b, steps, mask, sums);
    ++lower;
  } while (++x != end);
  sums.To(acc);
}

// One row of the tile from memory.
template <int kVecs>
[[gnu::always_inline]] inline void LoadRow(const float* from, bool full, Vec::Mask mask,
                                           Vec (&row)[kVecs]) {
#pragma GCC unroll 8
  for (int v = 0; v + 1 < kVecs; ++v) row[v] = Vec::Load(from + v * Vec::kLanes);
  const float* last = from + (kVecs - 1) * Vec::kLanes;
  row[kVecs - 1] = full ? Vec::Load(last) : Vec::LoadMasked(last, mask);
}

// The sums so far: zeros, init or what an earlier part of k left in y.  Those of integers begin at
// 0.
template <int kRows, int kVecs>
[[gnu::always_inline]] inline void Begin(const Pass& pass, int64_t row, Vec::Mask mask,
                                         Vec (&acc)[kRows][kVecs]) {
  const FcArgs& a = *pass.args;
  const bool full = pass.width == kVecs * Vec::kLanes;
  const float* const init = kInt8 ? nullptr : a.init;
  if (pass.resumes || (init != nullptr && a.init_stride != 0)) {
    for (int r = 0; r < kRows; ++r) {
      const float* from = pass.resumes ? a.y + (row + r) * a.y_stride : InitRow(a, row + r);
      LoadRow(from + pass.column, full, mask, acc[r]);
    }
    return;
  }
  Vec first[kVecs];
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) first[v] = Vec::Zero();
  if (init != nullptr) LoadRow(init + pass.column, full, mask, first);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = first[v];
  }
}

// What sums of integers stand for, and init, of one row.
template <int kVecs>
[[gnu::always_inline]] inline void Scale(const Pass& pass, int64_t row, bool full, Vec::Mask mask,
                                         Vec (&sums)[kVecs]) {
  const FcArgs& a = *pass.args;
  Vec scale[kVecs], column[kVecs], start[kVecs];
  LoadRow(a.w.scales + pass.column, full, mask, scale);
  LoadRow(a.w.scales + a.w.n + pass.column, full, mask, column);
  for (int v = 0; v < kVecs; ++v) start[v] = Vec::Zero();
  if (a.init != nullptr) LoadRow(InitRow(a, row) + pass.column, full, mask, start);
  const Vec step = Vec::Broadcast(a.ranges + 2 * row);
  const Vec least = Vec::Broadcast(a.ranges + 2 * row + 1);
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const Vec at_least = Vec::Fma(least, column[v], start[v]);
    sums[v] = Vec::Fma(Vec::FromIntegers(sums[v]), step * scale[v], at_least);
  }
}

// relu and prelu in registers.
template <int kRows, int kVecs>
[[gnu::always_inline]] inline void Rectify(const Pass& pass, bool full, Vec::Mask mask,
                                           Vec (&acc)[kRows][kVecs]) {
  Vec slope[kVecs];
  const Activation& act = pass.args->epilogue.activation;
  if (act.kind == Activation::Kind::kPrelu) LoadRow(act.slope + pass.column, full, mask, slope);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] =
          act.kind == Activation::Kind::kPrelu ? Prelu(acc[r][v], slope[v]) : Relu(acc[r][v]);
    }
  }
}

template <int kRows, int kVecs>
[[gnu::always_inline]] inline void End(const Pass& pass, int64_t row, Vec::Mask mask,
                                       Vec (&acc)[kRows][kVecs]) {
  float* y = pass.args->y + row * pass.args->y_stride + pass.column;
  const bool full = pass.width == kVecs * Vec::kLanes;
  if constexpr (kInt8) {
    // A loop, so that what it needs takes no registers from the sums while they grow.
#pragma GCC unroll 1
    for (int r = 0; r < kRows; ++r) Scale(pass, row + r, full, mask, acc[r]);
  }
  if (pass.rectify) Rectify(pass, full, mask, acc);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, y += pass.args->y_stride) {
#pragma GCC unroll 8
    for (int v = 0; v + 1 < kVecs; ++v) acc[r][v].Store(y + v * Vec::kLanes);
    if (full) {
      acc[r][kVecs - 1].Store(y + (kVecs - 1) * Vec::kLanes);
    } else {
      acc[r][kVecs - 1].StoreMasked(y + (kVecs - 1) * Vec::kLanes, mask);
    }
  }
}

// Rows [row, row + kRows).
template <int kRows, int kVecs, LastVec kLast>
void Tile(const Pass& pass, int64_t row) {
  const Vec::Mask mask = Vec::MaskOf(pass.width - (kVecs - 1) * Vec::kLanes);
  Vec acc[kRows][kVecs];
  Begin(pass, row, mask, acc);
  const float* b[PanelsOf(kVecs)];
  int64_t steps[PanelsOf(kVecs)];
  for (int p = 0; p < PanelsOf(kVecs); ++p) steps[p] = pass.steps[p];
  const Left& left = pass.left;
  int64_t from = left.from, w_row = left.w_row;
  for (const FcBlock* block = left.first;; from = 0) {
    const int64_t to = block == left.last ? left.to : block->k;
    const float* x = block->x + (row - left.first_row) * block->stride + from;
    for (int p = 0; p < PanelsOf(kVecs); ++p) b[p] = pass.panels[p] + w_row * steps[p];
    Accumulate<kRows, kVecs, kLast>(x, block->stride, to - from, b, steps, mask, acc);
    if (block == left.last) break;
    w_row += to - from;
    do {
      ++block;
      if (block->w_row != FcBlock::kNext) w_row = block->w_row;
    } while (block->k == 0);
  }
  End(pass, row, mask, acc);
}

// How many rows a tile of `vecs` vectors may have.
constexpr int MaxRows(int vecs, LastVec last = LastVec::kFull) {
  const int rows = last == LastVec::kPairs ? (Vec::kAccumulators + 1) / (2 * vecs - 1) * 2
                                           : Vec::kAccumulators / vecs;
  return rows < 1 ? 1 : rows < Vec::kMaxTileRows ? rows : Vec::kMaxTileRows;
}

// As many rows as fit, the rest in tiles of about equal size, so that none is left with too few
// chains.
template <int kVecs, LastVec kLast, int kRows = MaxRows(kVecs, kLast)>
[[gnu::always_inline]] inline void TileOf(const Pass& pass, int64_t row, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return Tile<kRows, kVecs, kLast>(pass, row);
    TileOf<kVecs, kLast, kRows - 1>(pass, row, rows);
  }
}

template <int kVecs, LastVec kLast>
void RowTiles(const Pass& pass, int64_t row, int64_t end) {
  constexpr int64_t kMax = MaxRows(kVecs, kLast), kLine = 16;
  const int64_t ahead = pass.next_floats / ((end - row + kMax - 1) / kMax);
  const float* next = pass.next;
  while (row < end) {
    for (const float* const to = next + ahead; next < to; next += kLine) __builtin_prefetch(next);
    const int64_t left = end - row;
    const int64_t rows = left >= 2 * kMax ? kMax : left > kMax ? (left + 1) / 2 : left;
    TileOf<kVecs, kLast>(pass, row, rows);
    row += rows;
  }
}

template <int kVecs>
void RunPass(const Pass& pass, int64_t row, int64_t end) {
  if (pass.last_is_masked) return RowTiles<kVecs, LastVec::kMasked>(pass, row, end);
  if constexpr (kPanelVecs == 1) {
    if (pass.last_is_half) return RowTiles<kVecs, LastVec::kPairs>(pass, row, end);
  }
  RowTiles<kVecs, LastVec::kFull>(pass, row, end);
}

using PassFn = void(const Pass&, int64_t, int64_t);

inline PassFn* PassOf(int vecs) {
  constexpr PassFn* kOf[] = {nullptr,     &RunPass<1>, &RunPass<2>, &RunPass<3>, &RunPass<4>,
                             &RunPass<5>, &RunPass<6>, &RunPass<7>, &RunPass<8>};
  return kOf[vecs];
}

// Columns per group of vectors.
inline int GroupVecs(int64_t rows, int64_t left) {
  // Tall calls: what keeps most registers busy.  A half panel joins the last full one.
  const int vecs = rows == 1 ? kMaxVecs : rows <= 3 ? 4 : 2;
  const int64_t needed = (left + Vec::kLanes - 1) / Vec::kLanes;
  return needed <= vecs || (vecs == 2 && needed == 3) ? static_cast<int>(needed) : vecs;
}

inline void SetColumns(const MatrixView& w, int64_t column, int vecs, Pass& pass) {
  pass.column = column;
  pass.width = Least(w.n - column, vecs * int64_t{Vec::kLanes});
  const int64_t full = w.n / MatrixView::kPanel;
  for (int p = 0; p < kMaxPanels; ++p) {
    // Panels that the tile does not have are never read.
    const int64_t panel = Least(column / MatrixView::kPanel + p, full);
    pass.steps[p] = panel < full ? w.row_stride : w.tail_row_stride;
    pass.panels[p] = w.data + panel * w.panel_stride;
  }
  const bool in_tail = column + pass.width > full * MatrixView::kPanel;
  pass.last_is_half = in_tail && w.padded && w.tail_row_stride < MatrixView::kPanel;
  pass.last_is_masked = in_tail && !w.padded && pass.width % Vec::kLanes != 0;
}

constexpr int64_t kPart = 320;               // Of k, so that a panel's part stays in L1.
constexpr int64_t kLeftFloats = 32 * 1024;   // Of x, so that it stays in L2.
constexpr int64_t kNearFloats = 128 * 1024;  // Of w, which stay in L2.
constexpr int64_t kHidingRows = 32;  // Work enough to fetch the next panel's part meanwhile.

// A part of x, rows [row, end) and columns [k_begin, k_end), with rows that are not a multiple of
// 1 KB apart.
struct LeftCopy {
  // Rows this far apart fall into the same few sets of the first-level cache and evict each other,
  // and what of w is there.
  static constexpr int64_t kBadStride = 256;
  static constexpr int64_t kGap = 16;
  static constexpr int64_t kFloats = 48 * 1024;

  static int64_t StrideOf(int64_t k) {
    const int64_t stride = k / kGap * kGap + kGap;
    return stride % kBadStride == 0 ? stride + kGap : stride;
  }
  // How many rows fit.
  static int64_t MaxRows(int64_t k) { return kFloats / StrideOf(k); }

  static int64_t FirstWRow(const FcArgs& a) {
    return a.block_count == 0 || a.blocks[0].w_row == FcBlock::kNext ? 0 : a.blocks[0].w_row;
  }

  static bool Wanted(const FcArgs& a) {
    if (a.rows < 24 || a.w.n < 8 * Vec::kLanes) return false;  // Not read often enough.
    bool bad_stride = false;
    int64_t w_row = FirstWRow(a);
    for (int64_t i = 0; i < a.block_count; ++i) {
      // One block for all meets rows of w that follow one another.
      if (a.blocks[i].w_row != FcBlock::kNext && a.blocks[i].w_row != w_row) return false;
      bad_stride |= a.blocks[i].stride != 0 && a.blocks[i].stride % kBadStride == 0;
      w_row += a.blocks[i].k;
    }
    return bad_stride;
  }

  Left Take(const FcArgs& a, int64_t row, int64_t end, int64_t k_begin, int64_t k_end) {
    block.x = floats;
    block.k = k_end - k_begin;
    block.w_row = FirstWRow(a) + k_begin;
    block.stride = StrideOf(block.k);
    int64_t k = 0;
    float* to = floats;
    for (int64_t i = 0; i < a.block_count && k < k_end; k += a.blocks[i].k, ++i) {
      const FcBlock& from = a.blocks[i];
      const int64_t first = k_begin > k ? k_begin - k : 0;
      const int64_t count = Least(from.k, k_end - k) - first;
      if (count <= 0) continue;
      for (int64_t r = row; r < end; ++r) {
        __builtin_memcpy(to + (r - row) * block.stride, from.x + r * from.stride + first,
                         sizeof(float) * count);
      }
      to += count;
    }
    return {&block, &block, row, 0, block.k, block.w_row};
  }

  FcBlock block;
  alignas(64) float floats[kFloats];
};

void FcPanelsFrom(const FcArgs& a, LeftCopy* copy) {
  constexpr int64_t kMainRows = MaxRows(2);
  // Where init is y, sums of integers have no place to rest.
  const int64_t parts = kInt8 || a.rows <= kMainRows ? 1 : (a.k + kPart - 1) / kPart;
  const int64_t part = (a.k + parts - 1) / parts;
  int64_t chunk = kLeftFloats / part / 12 * 12;
  if (chunk < 48) chunk = 48;
  // The last chunk may be half as long again.
  if (copy != nullptr) chunk = Least(chunk, LeftCopy::MaxRows(part) * 2 / 3 / 12 * 12);
  // A part of a panel lies in one piece.
  const bool fetches =
      a.w.row_stride == MatrixView::kPanel && a.k * a.w.n > kNearFloats && a.rows >= kHidingRows;
  Pass pass;
  pass.args = &a;
  using Kind = Activation::Kind;
  const Kind kind = a.epilogue.activation.kind;
  const bool rectify =
      a.epilogue.affine.mean == nullptr && (kind == Kind::kRelu || kind == Kind::kPrelu);
  for (int64_t row = 0; row < a.rows; row += chunk) {
    const int64_t end = a.rows - row < chunk + chunk / 2 ? a.rows : row + chunk;
    for (int64_t k = 0; k < a.k; k += part) {
      const int64_t k_end = Least(k + part, a.k);
      pass.left = copy != nullptr ? copy->Take(a, row, end, k, k_end) : LeftOf(a, k, k_end);
      pass.resumes = k > 0;
      pass.rectify = k_end == a.k && rectify;
      for (int64_t column = 0; column < a.w.n;) {
        const int vecs = GroupVecs(a.rows, a.w.n - column);
        SetColumns(a.w, column, vecs, pass);
        column += vecs * int64_t{Vec::kLanes};
        const bool wraps = column >= a.w.n;
        const int64_t panel = wraps ? 0 : column / MatrixView::kPanel;
        const int64_t w_row = pass.left.w_row + (wraps ? k_end - k : 0);
        pass.next = a.w.data + panel * a.w.panel_stride + w_row * a.w.row_stride;
        pass.next_floats = fetches ? (k_end - k) * MatrixView::kPanel : 0;
        PassOf(vecs)(pass, row, end);
      }
    }
    if (!rectify) FinishInPlace(a.epilogue, a.y + row * a.y_stride, a.y_stride, end - row, a.w.n);
    if (end == a.rows) break;
  }
}

[[gnu::noinline]] void FcPanelsFromCopy(const FcArgs& a) {
  LeftCopy copy;
  FcPanelsFrom(a, &copy);
}

// Without a product: the epilogue of init.
void FcOfNothing(const FcArgs& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    float* y = a.y + r * a.y_stride;
    const float* init = a.init != nullptr ? InitRow(a, r) : nullptr;
    for (int64_t j = 0; j < a.w.n; ++j) y[j] = init != nullptr ? init[j] : 0.0f;
  }
  EpilogueRows(a.epilogue, a.y, a.y_stride, a.y, a.y_stride, a.rows, a.w.n);
}

void FcPanels(const FcArgs& a) {
  if (a.k == 0) return FcOfNothing(a);
  if (LeftCopy::Wanted(a)) return FcPanelsFromCopy(a);
  FcPanelsFrom(a, nullptr);
}

// ------------------------------------------------------------------------------------- columns

// Up to four columns: sums over vectors along k, then over their lanes.  Four rows at once; of one
// column eight, for its sums cost as much as its products.
template <int kRows, int kColumns>
void DotTile(const FcArgs& a, int64_t row, float* sums) {
  constexpr int kWhole = (kRows + 3) / 4 * 4;
  Vec acc[kWhole][kColumns];  // In registers: every loop over it is unrolled.
#pragma GCC unroll 8
  for (int r = 0; r < kWhole; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) acc[r][c] = Vec::Zero();
  }
  const float* w = a.w.data;
  for (int64_t i = 0; i < a.block_count; w += a.blocks[i].k, ++i) {
    const FcBlock& block = a.blocks[i];
    if (block.w_row != FcBlock::kNext) w = a.w.data + block.w_row;
    if (block.k == 0) continue;
    const float* x = block.x + row * block.stride;
    int64_t k = 0;
    for (; k + Vec::kLanes <= block.k; k += Vec::kLanes) {
      Vec b[kColumns];
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) b[c] = Vec::Load(w + c * a.w.k + k);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec left = Vec::Load(x + r * block.stride + k);
#pragma GCC unroll 4
        for (int c = 0; c < kColumns; ++c) acc[r][c] = MultiplyAdd(left, b[c], acc[r][c]);
      }
    }
    if (k == block.k) continue;
    const Vec::Mask mask = Vec::MaskOf(block.k - k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec left = Vec::LoadMasked(x + r * block.stride + k, mask);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        acc[r][c] = MultiplyAdd(left, Vec::LoadMasked(w + c * a.w.k + k, mask), acc[r][c]);
      }
    }
  }
  if constexpr (kColumns == 4) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Vec::Sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3], sums + r * kColumns);
    }
    return;
  }
#pragma GCC unroll 2
  for (int r = 0; r < kWhole; r += 4) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float column[4];
      float* const to = kColumns == 1 ? sums + r : column;
      Vec::Sum4(acc[r][c], acc[r + 1][c], acc[r + 2][c], acc[r + 3][c], to);
      for (int i = 0; kColumns > 1 && i < 4; ++i) sums[(r + i) * kColumns + c] = column[i];
    }
  }
}

// The tile's rows, as they are stored.
template <int kRows, int kColumns>
void StoreTile(const FcArgs& a, int64_t row) {
  float sums[(kRows + 3) / 4 * 4 * kColumns];
  const bool whole = kRows % 4 == 0 && a.init == nullptr && a.y_stride == kColumns;
  float* const y = a.y + row * a.y_stride;
  DotTile<kRows, kColumns>(a, row, whole ? y : sums);
  if (whole) return;
  for (int64_t r = 0; r < kRows; ++r) {
    const float* init = a.init != nullptr ? InitRow(a, row + r) : nullptr;
    for (int c = 0; c < kColumns; ++c) {
      const float sum = sums[r * kColumns + c];
      y[r * a.y_stride + c] = init != nullptr ? init[c] + sum : sum;
    }
  }
}

template <int kColumns>
void FcColumns(const FcArgs& a) {
  int64_t row = 0;
  if constexpr (kColumns == 1) {
    for (; row + 8 <= a.rows; row += 8) StoreTile<8, 1>(a, row);
  }
  for (; row + 4 <= a.rows; row += 4) StoreTile<4, kColumns>(a, row);
  switch (a.rows - row) {
    case 3:
      StoreTile<3, kColumns>(a, row);
      break;
    case 2:
      StoreTile<2, kColumns>(a, row);
      break;
    case 1:
      StoreTile<1, kColumns>(a, row);
      break;
    default:
      break;
  }
  FinishInPlace(a.epilogue, a.y, a.y_stride, a.rows, kColumns);
}

void FcRows(const FcArgs& a) {
  if (a.rows == 0 || a.w.n == 0) return;
  if (kInt8 || !a.w.columns) return FcPanels(a);
  switch (a.w.n) {
    case 1:
      return FcColumns<1>(a);
    case 2:
      return FcColumns<2>(a);
    case 3:
      return FcColumns<3>(a);
    default:
      return FcColumns<4>(a);
  }
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)

#endif  // ULFD_ENGINE_KERNELS_FC_BODY_H_
