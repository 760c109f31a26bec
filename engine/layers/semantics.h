// What a graph pass may know of a layer: its function as plain data, instead of its class.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_LAYERS_SEMANTICS_H_
#define ULFD_ENGINE_LAYERS_SEMANTICS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/fc.h"

namespace ulfd::engine {

struct FusedFcOptions;  // engine/layers/fused/fused_fc.h

// Parameters that repeat along the flattened input (index modulo size): prelu, bn and dice.
struct CyclicParams {
  int64_t period = 0;                      // Common period of all of them.
  int64_t block = 0;                       // A multiple of the period; length of each vector below.
  std::vector<std::vector<float>> values;  // Per weight.
};

// A weight matrix W [k, n] wherever it lies: rows of matrices that are laid out for kernels, one
// below the other; or, if there are no such rows, element (i, j) is data[i * row_stride + j *
// column_stride].
struct MatrixRef {
  // Rows [first, first + count).
  struct Rows {
    std::shared_ptr<const PackedMatrix> matrix;
    int64_t first = 0, count = 0;
  };

  const float* data = nullptr;
  int64_t k = 0, n = 0;
  int64_t row_stride = 0, column_stride = 0;
  std::vector<Rows> rows;

  // Whether it is shared with others, so that whoever changes it makes a copy.
  bool shared() const { return !rows.empty(); }
  float at(int64_t i, int64_t j) const {
    for (const Rows& part : rows) {
      if (i < part.count) return part.matrix->at(part.first + i, j);
      i -= part.count;
    }
    return data[i * row_stride + j * column_stride];
  }
};

// Everything that is borrowed here lives as long as the layer.
struct Semantics {
  enum class Op : uint8_t {
    kOther,             // Not described: passes leave it alone.
    kFullyConnected,    // y = x W + b over the last dimension; matrices[0].
    kFullyConnectedEx,  // y = x1 W1 + x2 W2 + b; matrices[0], matrices[1].
    kRelu,
    kSigmoid,
    kTanh,
    kPrelu,      // params: slope.
    kBatchNorm,  // params: beta, gamma, mean, var; eps.
    kDice,       // params: gamma, mean, var; eps.
    kSoftmax,    // axis.
    kLayerNorm,  // Over the last dimension.
    kConcat,     // axis.
    kReshape,
    kSlice,      // pieces, put together along axis; side by side, if `contiguous`.
    kBroadcast,  // To the shape of input 1, or to the output's.
    kSum,        // axis.
    kFuse,       // axis: the common input.
    kConstant,   // constant.
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kWhere,
    kTranspose,  // perm.
    kBatchDot,   // transpose_a, transpose_b.
    kEmbedding,
    kFusedFc,  // fused_fc.
  };
  // Columns [offset, offset + elements) of a row seen flat.
  struct Piece {
    int64_t offset = 0, elements = 0;
  };

  Op op = Op::kOther;
  int axis = 1;
  bool transpose_a = false, transpose_b = false;
  std::vector<MatrixRef> matrices;
  absl::Span<const float> bias;  // Empty: none.
  int64_t bias_rows = 0;         // 1: one row for all; more: added by numpy's rules.
  const CyclicParams* params = nullptr;
  float eps = 0;
  std::vector<Piece> pieces;
  std::vector<int> perm;    // Axis perm[k] of the input becomes axis k.
  bool contiguous = false;  // kSlice: the pieces follow one another in a row of the output.
  absl::Span<const float> constant;
  const FusedFcOptions* fused_fc = nullptr;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_LAYERS_SEMANTICS_H_
