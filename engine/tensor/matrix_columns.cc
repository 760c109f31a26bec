// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/matrix_columns.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// Whether `to` has the value.
template <typename From, typename To>
bool Convert(From from, To& to) {
  if constexpr (std::is_floating_point_v<From> && std::is_floating_point_v<To>) {
    to = from;
    return true;
  } else if constexpr (std::is_floating_point_v<From>) {
    if (!(std::abs(from) < 0x1p63f)) return false;  // NaN, too.
    const auto cut = static_cast<int64_t>(from);
    to = static_cast<To>(cut);
    return std::in_range<To>(cut);
  } else if constexpr (std::is_floating_point_v<To>) {
    to = static_cast<To>(from);
    return from >= -kExactFloat && from <= kExactFloat;
  } else {
    to = static_cast<To>(from);
    return std::in_range<To>(from);
  }
}

template <typename T>
constexpr absl::string_view kTypeName = std::is_same_v<T, float>     ? "float32"
                                        : std::is_same_v<T, int32_t> ? "int32"
                                                                     : "int64";

template <typename From, typename T>
absl::Status Append(const Tensor& tensor, absl::Span<const int64_t> columns, absl::string_view what,
                    std::vector<T>& values) {
  const int64_t rows = tensor.dims[0];
  const auto* const bytes = static_cast<const char*>(tensor.data);
  for (int64_t row = 0; row < rows; ++row) {
    for (const int64_t column : columns) {
      From from;
      std::memcpy(&from, bytes + (row * (tensor.elements() / rows) + column) * sizeof from,
                  sizeof from);
      if (Convert(from, values.emplace_back())) continue;
      return InvalidArgument(what, ": row ", row, ", column ", column, " is ", from,
                             ", which is no ", kTypeName<T>);
    }
  }
  return absl::OkStatus();
}

}  // namespace

template <typename T>
absl::StatusOr<std::vector<T>> ColumnsOf(const Tensor& tensor, absl::Span<const int64_t> columns,
                                         absl::string_view what) {
  std::vector<int64_t> all;
  if (columns.empty() && tensor.dims[0] > 0) {
    all.resize(tensor.elements() / tensor.dims[0]);
    std::iota(all.begin(), all.end(), 0);
    columns = all;
  }
  std::vector<T> values;
  values.reserve(tensor.dims[0] * columns.size());
  switch (tensor.dtype) {
    case DType::kFloat32:
      RETURN_IF_ERROR(Append<float>(tensor, columns, what, values));
      break;
    case DType::kInt32:
      RETURN_IF_ERROR(Append<int32_t>(tensor, columns, what, values));
      break;
    case DType::kInt64:
      RETURN_IF_ERROR(Append<int64_t>(tensor, columns, what, values));
      break;
  }
  return values;
}

template absl::StatusOr<std::vector<float>> ColumnsOf(const Tensor& tensor,
                                                      absl::Span<const int64_t> columns,
                                                      absl::string_view what);
template absl::StatusOr<std::vector<int32_t>> ColumnsOf(const Tensor& tensor,
                                                        absl::Span<const int64_t> columns,
                                                        absl::string_view what);
template absl::StatusOr<std::vector<int64_t>> ColumnsOf(const Tensor& tensor,
                                                        absl::Span<const int64_t> columns,
                                                        absl::string_view what);

}  // namespace ulfd::engine
