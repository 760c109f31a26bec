// Operators computed on constants while converting: what their tables share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CONVERT_ONNX_FOLD_FOLD_H_
#define ULFD_TOOLS_CONVERT_ONNX_FOLD_FOLD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "tools/convert/onnx/model/constant.h"

namespace ulfd::convert {

struct FoldContext {
  const onnx::NodeProto& node;
  int64_t opset;
  absl::Span<const Constant* const> in;  // Null: left out.
};

struct Fold {
  const char* op;
  absl::StatusOr<Constant> (*run)(const FoldContext&);
};
absl::Span<const Fold> MovementFolds();    // onnx_fold_movement.cc
absl::Span<const Fold> ArithmeticFolds();  // onnx_fold_arithmetic.cc
absl::StatusOr<std::vector<Constant>> FoldSplit(const FoldContext& ctx);

// A constant of the type of `like` whose element i is element from[i] of it.
Constant Picked(const Constant& like, const std::vector<int64_t>& sizes,
                const std::vector<int64_t>& from);
std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes);
// Element offsets of `sizes`, walked in order, under `strides`.
std::vector<int64_t> Walk(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                          int64_t start = 0);

}  // namespace ulfd::convert

#endif  // ULFD_TOOLS_CONVERT_ONNX_FOLD_FOLD_H_
