// Numbers of the types that files and requests bring, and as those that tensors have.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_TENSOR_NUMBERS_H_
#define ULFD_ENGINE_TENSOR_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/tensor/tensor.h"

namespace ulfd::engine {

enum class NumberType : uint8_t {
  kFloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kBfloat16,  // numpy has none.
  kBool,      // A byte; 1 unless it is 0.
};

// Bytes per element.
size_t SizeOf(NumberType type);
// numpy's names: "float16", "int64", ...
absl::string_view Name(NumberType type);
// KServe's: "FP16", "INT64", ...
absl::string_view KserveName(NumberType type);
std::optional<NumberType> TypeOfKserve(absl::string_view name);
NumberType TypeOf(DType dtype);
bool IsFloat(NumberType type);
// Whether the integer is one of the type's, of 0 and 1 for kBool.  REQUIRES: not IsFloat(type).
bool HasInteger(NumberType type, int64_t value);

// An IEEE half, NaN and infinities included.
float HalfToFloat(uint16_t half);

// Elements converted to float32; `bytes` is little-endian and holds `count` elements.
std::vector<float> ToFloat32(NumberType type, const char* bytes, size_t count);
// Truncates floating-point values toward zero; uint64 from 2^63 on become negative.
std::vector<int64_t> ToInt64(NumberType type, const char* bytes, size_t count);

// Borrowed elements, row-major, which may lie at any address.
struct NumberArray {
  NumberType type = NumberType::kFloat32;
  TensorDims dims;
  const void* data = nullptr;

  int64_t elements() const;
};

// What becomes of floats where integers are wanted.
enum class Fractions {
  kCut,  // As ONNX casts, towards 0.
  kRefuse,
};

// Those elements of each row of an array [rows, ...], row by row; all of them if there are no
// `columns`.  Floats are rounded.  T: float, int32_t, int64_t.
// INVALID_ARGUMENT names the first element that T does not have, integers that would be rounded
// among them; `what` begins the error.  REQUIRES: every row has those columns.
template <typename T>
absl::StatusOr<std::vector<T>> NumbersAs(const NumberArray& array,
                                         absl::Span<const int64_t> columns, Fractions fractions,
                                         absl::string_view what);

// Ids row by row, and how many each row has.
struct IdRows {
  std::vector<int64_t> ids;
  std::vector<int32_t> counts;
};

// Those elements as ids, as NumbersAs cuts them, without the id that fills up rows before or behind
// theirs, if there is one: INVALID_ARGUMENT, too, for a row that has it between ids.
absl::StatusOr<IdRows> IdRowsOf(const NumberArray& array, absl::Span<const int64_t> columns,
                                std::optional<int64_t> padding, absl::string_view what);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_TENSOR_NUMBERS_H_
