// What layer_norm, tap_rows and dot_product_attention of table.h are asked for.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_ROW_ARGS_H_
#define ULFD_ENGINE_KERNELS_ROW_ARGS_H_

#include <cstdint>

namespace ulfd::engine {

struct RowNorm {
  float eps = 0;
  bool centred = true;
  const float* scale = nullptr;  // n values, as `shift`; null: neither.
  const float* shift = nullptr;
};

struct TapArgs {
  static constexpr int64_t kGroup = 8;  // Outputs whose weights lie side by side.
  const float* x = nullptr;
  int64_t x_step = 0;  // From row to row.
  const int64_t* offsets = nullptr;
  int64_t taps = 0;
  const float* w = nullptr;     // [outputs / kGroup, rounded up; taps; kGroup]
  const float* bias = nullptr;  // [outputs]; null: zeros.
  int64_t outputs = 0, rows = 0, n = 0;
  float* y = nullptr;  // Rows of an output follow each other.
  int64_t y_step = 0;  // From output to output.
};

// A matrix of which neither rows nor columns need lie side by side; in floats from element to
// element, 0: the same for all.
struct StridedMatrix {
  const float* data = nullptr;
  int64_t step = 0, column = 0;
};

enum class AttentionMask : uint8_t {
  kAdded,  // `number` times it.
  kKeeps,  // Where it is above 0; elsewhere logits are `number`.
  kDrops,  // Where it is above 0, logits are `number`.
};

struct MaskArgs {
  AttentionMask kind = AttentionMask::kAdded;
  float number = 1;
  StridedMatrix at;  // [queries, keys]
};

inline constexpr int kMostMasks = 4;

// One head, or some of its queries.
struct DotProductArgs {
  int64_t queries = 0, keys = 0, width = 0, v_width = 0;
  float scale = 1;
  StridedMatrix q, k, v;  // [queries, width], [keys, width], [keys, v_width]
  int mask_count = 0;
  MaskArgs masks[kMostMasks];  // One after the other.
  float* y = nullptr;          // [queries, v_width]
  int64_t y_step = 0, y_column = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_ROW_ARGS_H_
