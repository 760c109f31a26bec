// Formulas in reverse Polish form -> steps over blocks of values that stay in registers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_BLOCK_PROGRAM_H_
#define ULFD_ENGINE_LAYERS_BLOCK_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/types.h"
#include "engine/layers/expression.h"

namespace ulfd::engine {

// Immutable after Compile.
class BlockProgram {
 public:
  // nullopt if the formula has an operation that blocks lack: log, and powers other than squares.
  static std::optional<BlockProgram> Compile(const Expression& expression);

  // Bytes of scratch that a run needs.
  size_t ScratchBytes() const {
    return places_ * PlaceFloats() * sizeof(float) + lines_.size() * sizeof(BlockStep);
  }
  // Whether Run takes several rows at once.  Functions such as sigmoid are worth calling for many
  // values only: a formula with one is computed in parts, tile by tile.
  bool takes_rows() const { return parts_.size() == 1; }

  // Computes y [rows, n], without gaps.  One operand per input, of Kind::kRows or kScalar.  Allocates
  // nothing.  REQUIRES: scratch is 8-byte aligned; takes_rows() or one row.
  void Run(absl::Span<const BlockOperand> inputs, void* scratch, float* y, int64_t rows,
           int64_t n) const;

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
  // Lines up to `end`, then place `to` = function(from) as a whole.
  struct Part {
    size_t end = 0;
    std::optional<UnaryOp> function;
    Source from;
    int to = 0;
  };
  static constexpr int64_t kTile = 1024;
  // Not a multiple of 4096 bytes, where processors take the store to one place for one to the next.
  static constexpr int64_t kTilePlace = kTile + 80;
  int64_t PlaceFloats() const { return takes_rows() ? BlockOperand::kPlaceFloats : kTilePlace; }

  BlockOperand Bind(Source source, absl::Span<const BlockOperand> inputs, int64_t from,
                    float* places, float* y, int64_t n) const;
  // Steps [begin, begin + 2) on one row if they are one operation of arithmetic whose result is kept:
  // its own kernel is faster.  False: they are not.
  static bool RunArithmetic(const BlockStep* begin, int64_t n);
  // Values [from, from + n) of every row.
  void RunTile(absl::Span<const BlockOperand> inputs, void* scratch, float* y, int64_t from,
               int64_t rows, int64_t n) const;

  std::vector<Line> lines_;
  std::vector<Part> parts_;
  std::vector<float> numbers_;
  int64_t places_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_BLOCK_PROGRAM_H_
