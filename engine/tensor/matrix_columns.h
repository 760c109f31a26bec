// Columns of a tensor that a request sends for several inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_MATRIX_COLUMNS_H_
#define ULFD_ENGINE_TENSOR_MATRIX_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

// A larger integer may be none of the floats.
inline constexpr int64_t kExactFloat = int64_t{1} << 24;

// Those elements of each row of a tensor [rows, ...], or all if there are no `columns`, row by row;
// they may lie at any address.
// Floats become integers as ONNX casts them, towards 0.  T: float, int32_t, int64_t.
// INVALID_ARGUMENT names the first element that T does not have, integers beyond kExactFloat for
// floats among them; `what` begins the error.  REQUIRES: every row has those columns.
template <typename T>
absl::StatusOr<std::vector<T>> ColumnsOf(const Tensor& tensor, absl::Span<const int64_t> columns,
                                         absl::string_view what);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_MATRIX_COLUMNS_H_
