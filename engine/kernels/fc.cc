// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/fc.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <vector>

#include "engine/kernels/low_precision.h"
#include "engine/kernels/table.h"

namespace ulfd::engine {
namespace {

constexpr int64_t kPanel = MatrixView::kPanel, kHalf = kPanel / 2;

constexpr std::align_val_t kAlignment{64};

// Width of the last panel in memory.
int64_t TailWidth(int64_t n) {
  const int64_t tail = n % kPanel;
  return tail == 0 ? kPanel : tail <= kHalf ? kHalf : kPanel;
}

float* AllocateFloats(int64_t count) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
  return static_cast<float*>(operator new(std::max<size_t>(bytes, 64), kAlignment));
}

// Fills a panel matrix of ViewOf's layout, with a last panel of `tail_width` columns.
void FillPanels(const float* from, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                int64_t tail_width, float* to) {
  for (int64_t column = 0; column < n; column += kPanel) {
    const int64_t used = std::min(kPanel, n - column);
    const int64_t width = used == kPanel ? kPanel : tail_width;
    if (row_stride == 1) {
      if (used < width) std::fill(to, to + k * width, 0.0f);
      Kernels().transpose(from + column * column_stride, column_stride, used, k, to, width);
      to += k * width;
      continue;
    }
    for (int64_t i = 0; i < k; ++i, to += width) {
      const float* row = from + i * row_stride + column * column_stride;
      for (int64_t j = 0; j < used; ++j) to[j] = row[j * column_stride];
      std::fill(to + used, to + width, 0.0f);
    }
  }
}

}  // namespace

void PackedMatrix::Free::operator()(float* p) const { operator delete(p, kAlignment); }

int64_t PackedMatrix::PackedFloats(int64_t k, int64_t n) {
  if (n <= MatrixView::kMaxColumns) return k * n;
  return k * (n / kPanel * kPanel + (n % kPanel == 0 ? 0 : TailWidth(n)));
}

MatrixView PackedMatrix::ViewOf(const float* data, int64_t k, int64_t n) {
  return {.data = data,
          .k = k,
          .n = n,
          .panel_stride = k * kPanel,
          .row_stride = kPanel,
          .tail_row_stride = TailWidth(n),
          .padded = true,
          .columns = n <= MatrixView::kMaxColumns};
}

PackedMatrix PackedMatrix::Pack(const float* data, int64_t k, int64_t n, int64_t row_stride,
                                int64_t column_stride) {
  PackedMatrix m;
  constexpr int64_t kLargeFloats = 1 << 20;
  const int64_t padded = PackedFloats(k, n);
  const bool exact = padded >= kLargeFloats && padded - k * n > k * n / 8;
  const int64_t floats = exact ? k * n : padded;
  m.owned_.reset(AllocateFloats(floats));
  m.bytes_ = floats * static_cast<int64_t>(sizeof(float));
  if (exact) {
    m.view_ = ViewOf(m.owned_.get(), k, n);
    m.view_.tail_row_stride = n % kPanel;
    m.view_.padded = false;
    FillPanels(data, k, n, row_stride, column_stride, n % kPanel, m.owned_.get());
  } else {
    m.view_ = PackInto(data, k, n, row_stride, column_stride, m.owned_.get());
  }
  return m;
}

MatrixView PackedMatrix::PackInto(const float* data, int64_t k, int64_t n, int64_t row_stride,
                                  int64_t column_stride, float* to) {
  const MatrixView view = ViewOf(to, k, n);
  if (!view.columns) {
    FillPanels(data, k, n, row_stride, column_stride, TailWidth(n), to);
    return view;
  }
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < k; ++i) to[j * k + i] = data[i * row_stride + j * column_stride];
  }
  return view;
}

PackedMatrix PackedMatrix::Borrow(const float* data, int64_t k, int64_t n, int64_t row_stride) {
  if (n <= MatrixView::kMaxColumns && (n != 1 || row_stride != 1)) {
    return Pack(data, k, n, row_stride, 1);
  }
  PackedMatrix m;
  m.view_ = {.data = data,
             .k = k,
             .n = n,
             .panel_stride = kPanel,
             .row_stride = row_stride,
             .tail_row_stride = row_stride,
             .padded = false,
             .columns = n == 1};
  return m;
}

PackedMatrix PackedMatrix::PackRounded(Precision precision, const float* data, int64_t k, int64_t n,
                                       int64_t row_stride, int64_t column_stride) {
  PackedMatrix m;
  const bool int8 = precision == Precision::kInt8;
  const int64_t floats = PackedFloats(FloatsOf(precision, k), n), scales = int8 ? 2 * n : 0;
  m.owned_.reset(AllocateFloats(floats + scales + MatrixView::kSlack));
  m.bytes_ = (floats + scales) * static_cast<int64_t>(sizeof(float));
  if (int8) {
    const Int8Matrix rounded = FourRows(data, k, n, row_stride, column_stride);
    m.view_ = PackInto(rounded.fours.data(), FloatsOf(precision, k), n, n, 1, m.owned_.get());
    m.view_.precision = precision;
    m.view_.scales =
        std::copy(rounded.scales.begin(), rounded.scales.end(), m.owned_.get() + floats) - scales;
  } else {
    std::vector<float> exact(PackedFloats(k, n));
    m.view_ =
        PairRows(PackInto(data, k, n, row_stride, column_stride, exact.data()), m.owned_.get());
  }
  return m;
}

void Fc(const FcCall& call, Isa isa) {
  int64_t k = 0, w_row = 0;
  for (const FcBlock& block : call.blocks) {
    k += block.k;
    w_row = (block.w_row == FcBlock::kNext ? w_row : block.w_row) + block.k;
    assert(w_row <= call.w.k);
  }
  const Precision precision = call.w.precision;
  assert(precision == Precision::kFp32 || call.blocks.size() == 1);
  const auto fc = precision == Precision::kFp32 ? KernelsOf(isa).fc : LowKernelsOf(precision).fc;
  fc({.blocks = call.blocks.data(),
      .block_count = static_cast<int64_t>(call.blocks.size()),
      .k = k,
      .rows = call.rows,
      .w = call.w,
      .ranges = call.ranges,
      .init = call.init,
      .init_stride = call.init_stride,
      .init_repeat = call.init_repeat,
      .init_period = call.init_period,
      .epilogue = call.epilogue,
      .y = call.y,
      .y_stride = call.y_stride});
}

absl::Status InPieces(FcCall call, absl::Span<FcBlock> blocks, int64_t work, Pace& pace,
                      absl::FunctionRef<absl::Status(const FcCall& piece)> run) {
  // Each piece reads all of w, which fewer rows would wait for.
  constexpr int64_t kLeastRows = 64;
  const int64_t pieces =
      std::max<int64_t>(1, call.rows / std::max(kLeastRows, Pace::RowsAtOnce(work, 1)));
  const int64_t at_once = (call.rows + pieces - 1) / pieces;
  // Rows after which init begins again, or goes on.
  const int64_t cycle = std::max(call.init_period, call.init_repeat);
  const float* const init = call.init;
  const int64_t rows = call.rows;
  call.blocks = blocks;
  for (int64_t begin = 0; begin < rows; begin += call.rows) {
    // Whole cycles, or a part of one.
    const int64_t left = cycle - begin % cycle, fit = std::min(at_once, rows - begin);
    call.rows = left < cycle || fit < cycle ? std::min(fit, left) : fit / cycle * cycle;
    if (init != nullptr) {
      const int64_t row = begin / call.init_repeat;
      call.init = init + (call.init_period > 0 ? row % call.init_period : row) * call.init_stride;
    }
    if (pace.Stops(call.rows * work)) break;
    if (absl::Status status = run(call); !status.ok()) return status;
    for (FcBlock& block : blocks) block.x += call.rows * block.stride;
    call.y += call.rows * call.y_stride;
  }
  return absl::OkStatus();
}

void FcInPieces(const FcCall& call, absl::Span<FcBlock> blocks, Pace& pace, Isa isa) {
  int64_t k = 0;
  for (const FcBlock& block : blocks) k += block.k;
  const int64_t work = k * call.w.n;
  if (call.rows * work <= Pace::kMillisecond) {  // One piece: many are products of a few rows.
    if (pace.Stops(call.rows * work)) return;
    FcCall whole = call;
    whole.blocks = blocks;
    return Fc(whole, isa);
  }
  const auto run = [isa](const FcCall& piece) {
    Fc(piece, isa);
    return absl::OkStatus();
  };
  InPieces(call, blocks, work, pace, run).IgnoreError();
}

}  // namespace ulfd::engine
