// Fully connected layers: y = act(affine(init + x * W)).
//
// Every value of y is one sum over k in order, whatever else is in the call, so that a row's bits
// depend neither on the number of rows nor on its place among them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_FC_H_
#define ULFD_ENGINE_KERNELS_FC_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/types.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// A weight matrix [k, n] laid out for Fc: in panels of 16 columns, the last of 8 or 16, or column
// by column if there are at most four.  The same for every instruction set.  Immutable; any thread
// may read it.
class PackedMatrix {
 public:
  PackedMatrix() = default;  // [0, 0]
  // A copy of the matrix whose element (i, j) is data[i * row_stride + j * column_stride].  A large
  // one is not padded where that would take an eighth more memory.
  static PackedMatrix Pack(const float* data, int64_t k, int64_t n, int64_t row_stride,
                           int64_t column_stride);
  // The matrix whose element (i, j) is data[i * row_stride + j], which the caller keeps, without a
  // copy (except of up to four columns).  Slower than a copy where row_stride is large.
  static PackedMatrix Borrow(const float* data, int64_t k, int64_t n, int64_t row_stride);
  // A copy in bf16 or int8 (see MatrixView::precision), half or a quarter of the size.  REQUIRES:
  // Has(precision) (low_precision.h); in int8 more than MatrixView::kMaxColumns columns.
  static PackedMatrix PackRounded(Precision precision, const float* data, int64_t k, int64_t n,
                                  int64_t row_stride, int64_t column_stride);

  // FloatsOf(precision, k).
  int64_t k() const { return view_.k; }
  int64_t n() const { return view_.n; }
  // Of the copy, if there is one.
  int64_t bytes() const { return bytes_; }
  const MatrixView& view() const { return view_; }
  // Element (i, j) of the matrix.  REQUIRES: kFp32.
  float at(int64_t i, int64_t j) const {
    if (view_.columns) return view_.data[j * view_.k + i];
    const int64_t panel = j / MatrixView::kPanel;
    const bool tail = panel == view_.n / MatrixView::kPanel;
    return view_
        .data[panel * view_.panel_stride + i * (tail ? view_.tail_row_stride : view_.row_stride) +
              j % MatrixView::kPanel];
  }

  // Floats that a matrix takes in this layout, and its view over such memory (64-byte aligned, to
  // be filled by the caller; see MatrixView): for matrices that are made per request.
  static int64_t PackedFloats(int64_t k, int64_t n);
  static MatrixView ViewOf(const float* data, int64_t k, int64_t n);
  // Pack into memory of the caller's, which must not overlap `data`.
  static MatrixView PackInto(const float* data, int64_t k, int64_t n, int64_t row_stride,
                             int64_t column_stride, float* to);

 private:
  struct Free {
    void operator()(float* p) const;
  };
  MatrixView view_;
  int64_t bytes_ = 0;
  std::unique_ptr<float[], Free> owned_;
};

// One fully connected layer.  Pointers are borrowed, of any alignment.
struct FcCall {
  // The left operand: blocks side by side, and the rows of w that they meet.  Unless they say
  // otherwise, they meet all of w in order, so that their widths sum up to its k.
  absl::Span<const FcBlock> blocks;
  int64_t rows = 0;
  MatrixView w;  // PackedMatrix::view()
  // With a matrix in int8, per row: what 1 is worth in its bytes, and what a byte of 0 stands for.
  const float* ranges = nullptr;
  // Where the sums start; null: at 0.  Row r starts with row (r / init_repeat) % init_period of
  // init, whose rows are init_stride floats apart.  A bias or a user's part: stride 0.  [T, n] for
  // each of several ads: period T.  [ads, n], each T times: repeat T.
  const float* init = nullptr;
  int64_t init_stride = 0;
  int64_t init_repeat = 1;
  int64_t init_period = 0;  // 0: no period.
  Epilogue epilogue;
  // Row r at y + r * y_stride.  Must not overlap any input; but init may be y, row for row.
  float* y = nullptr;
  int64_t y_stride = 0;
};

// Thread-safe; allocates nothing.  REQUIRES: widths that match, `isa` supported by this machine.
// With a matrix in a low precision there is one block, of what RoundRows gives, and `isa` does not
// matter.
void Fc(const FcCall& call, Isa isa = ActiveIsa());

// run(piece) for one piece of the rows of `call` after the other, until one fails or the pace
// stops.  Each takes one to two milliseconds if a row takes `work` multiplications, but has at
// least 64 rows.  `blocks` take the place of the call's, and are moved on.
absl::Status InPieces(FcCall call, absl::Span<FcBlock> blocks, int64_t work, Pace& pace,
                      absl::FunctionRef<absl::Status(const FcCall& piece)> run);
// Fc in such pieces.
void FcInPieces(const FcCall& call, absl::Span<FcBlock> blocks, Pace& pace, Isa isa = ActiveIsa());

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_FC_H_
