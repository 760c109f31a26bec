// Formulas in reverse Polish form -> steps over blocks of values that stay in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_COMMON_BLOCK_PROGRAM_H_
#define ULFD_ENGINE_LAYERS_COMMON_BLOCK_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/types.h"
#include "engine/layers/common/expression.h"
#include "engine/tensor/pace.h"

namespace ulfd::engine {

// Immutable after Compile.
class BlockProgram {
 public:
  static BlockProgram Compile(const Expression& expression);

  // Bytes of scratch that a run needs.
  size_t ScratchBytes() const {
    return static_cast<size_t>(places_ * BlockOperand::kPlaceFloats) * sizeof(float) +
           lines_.size() * sizeof(BlockStep);
  }
  // Computes y [rows, n], without gaps.  One operand per input, of any kind.  Allocates nothing.
  // REQUIRES: scratch is 8-byte aligned.
  void Run(absl::Span<const BlockOperand> inputs, void* scratch, float* y, int64_t rows, int64_t n,
           Pace& pace) const;

 private:
  friend class BlockCompiler;
  // Where an operand comes from.
  struct Source {
    enum class Kind : uint8_t { kNone, kInput, kPlace, kNumber, kOutput };
    Kind kind = Kind::kNone;
    int index = 0;
  };
  struct Line {
    BlockOp op;
    Source a, b;
  };

  // Rows and columns of a run.
  struct Piece {
    absl::Span<const BlockOperand> inputs;
    float* y;
    int64_t y_stride;
    int64_t row, column;  // The first ones.
    int64_t rows, n;
  };

  BlockOperand Bind(Source source, const Piece& piece, float* places) const;
  void RunPiece(const Piece& piece, void* scratch) const;
  // The program on one row if it is one operation of arithmetic: its own kernel is faster.  False:
  // it is not.
  static bool RunArithmetic(absl::Span<const BlockStep> steps, int64_t n);

  std::vector<Line> lines_;
  std::vector<float> numbers_;
  int64_t places_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_COMMON_BLOCK_PROGRAM_H_
