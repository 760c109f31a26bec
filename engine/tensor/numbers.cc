// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are kept little-endian");

struct TypeInfo {
  absl::string_view name;
  absl::string_view kserve;
  size_t size;
};
constexpr TypeInfo kTypes[] = {
    {"float16", "FP16", 2},  {"float32", "FP32", 4},  {"float64", "FP64", 8},
    {"int8", "INT8", 1},     {"uint8", "UINT8", 1},   {"int16", "INT16", 2},
    {"uint16", "UINT16", 2}, {"int32", "INT32", 4},   {"uint32", "UINT32", 4},
    {"int64", "INT64", 8},   {"uint64", "UINT64", 8}, {"bfloat16", "BF16", 2},
    {"bool", "BOOL", 1},
};

const TypeInfo& InfoOf(NumberType type) { return kTypes[static_cast<size_t>(type)]; }

// Elements as they lie in memory, and the number that each is.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};
float NumberOf(Half half) { return HalfToFloat(half.bits); }
float NumberOf(Bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
uint8_t NumberOf(Bool value) { return value.bits != 0 ? 1 : 0; }
template <typename T>
T NumberOf(T value) {
  return value;
}

// What `visit` makes of an element of the type.
template <typename Visit>
auto WithElement(NumberType type, Visit visit) {
  switch (type) {
    case NumberType::kFloat16:
      return visit(Half{});
    case NumberType::kFloat32:
      return visit(float{});
    case NumberType::kFloat64:
      return visit(double{});
    case NumberType::kInt8:
      return visit(int8_t{});
    case NumberType::kUint8:
      return visit(uint8_t{});
    case NumberType::kInt16:
      return visit(int16_t{});
    case NumberType::kUint16:
      return visit(uint16_t{});
    case NumberType::kInt32:
      return visit(int32_t{});
    case NumberType::kUint32:
      return visit(uint32_t{});
    case NumberType::kInt64:
      return visit(int64_t{});
    case NumberType::kUint64:
      return visit(uint64_t{});
    case NumberType::kBfloat16:
      return visit(Bfloat16{});
    case NumberType::kBool:
      break;
  }
  return visit(Bool{});
}

// `convert(number)` of each element.
template <typename To, typename Convert>
std::vector<To> ConvertAll(NumberType type, const char* bytes, size_t count, Convert convert) {
  std::vector<To> to(count);
  WithElement(type, [&](auto element) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&element, bytes + i * sizeof element, sizeof element);
      to[i] = convert(NumberOf(element));
    }
  });
  return to;
}

// Saturated, NaN as 0: a plain cast would be undefined.
int64_t Truncate(double value) {
  if (!(value == value)) return 0;
  if (value >= 0x1p63) return INT64_MAX;
  if (value < -0x1p63) return INT64_MIN;
  return static_cast<int64_t>(value);
}

// Whether `to` has the value.
template <typename From, typename To>
bool Convert(From from, Fractions fractions, To& to) {
  constexpr bool kFromFloat = std::is_floating_point_v<From>;
  if constexpr (kFromFloat && std::is_floating_point_v<To>) {
    to = static_cast<To>(from);
    return std::isfinite(to) || !std::isfinite(from);
  } else if constexpr (kFromFloat) {
    if (!(std::abs(from) < From{0x1p63})) return false;  // NaN, too.
    const auto cut = static_cast<int64_t>(from);
    to = static_cast<To>(cut);
    return std::in_range<To>(cut) &&
           (fractions == Fractions::kCut || static_cast<From>(cut) == from);
  } else if constexpr (std::is_floating_point_v<To>) {
    to = static_cast<To>(from);
    return std::abs(to) < To{0x1p63} && std::cmp_equal(static_cast<int64_t>(to), from);
  } else {
    to = static_cast<To>(from);  // NOLINT(bugprone-signed-char-misuse): numbers, no characters.
    return std::in_range<To>(from);
  }
}

template <typename T>
constexpr NumberType kTypeOf = std::is_same_v<T, float>     ? NumberType::kFloat32
                               : std::is_same_v<T, int32_t> ? NumberType::kInt32
                                                            : NumberType::kInt64;

}  // namespace

size_t SizeOf(NumberType type) { return InfoOf(type).size; }
absl::string_view Name(NumberType type) { return InfoOf(type).name; }
absl::string_view KserveName(NumberType type) { return InfoOf(type).kserve; }

std::optional<NumberType> TypeOfKserve(absl::string_view name) {
  for (const TypeInfo& info : kTypes) {
    if (info.kserve == name) return static_cast<NumberType>(&info - kTypes);
  }
  return std::nullopt;
}

NumberType TypeOf(DType dtype) {
  return dtype == DType::kFloat32 ? NumberType::kFloat32
         : dtype == DType::kInt32 ? NumberType::kInt32
                                  : NumberType::kInt64;
}

bool IsFloat(NumberType type) {
  return WithElement(
      type, [](auto element) { return std::is_floating_point_v<decltype(NumberOf(element))>; });
}

bool HasInteger(NumberType type, int64_t value) {
  if (type == NumberType::kBool) return value == 0 || value == 1;
  return WithElement(type, [value](auto element) {
    if constexpr (std::is_integral_v<decltype(element)>) {
      return std::in_range<decltype(element)>(value);
    } else {
      return false;
    }
  });
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // Zero or subnormal: fraction * 2^-24 is exact in float32.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

std::vector<float> ToFloat32(NumberType type, const char* bytes, size_t count) {
  return ConvertAll<float>(type, bytes, count,
                           [](auto number) { return static_cast<float>(number); });
}

std::vector<int64_t> ToInt64(NumberType type, const char* bytes, size_t count) {
  return ConvertAll<int64_t>(type, bytes, count, [](auto number) {
    if constexpr (std::is_integral_v<decltype(number)>) {
      return static_cast<int64_t>(number);
    } else {
      return Truncate(number);
    }
  });
}

int64_t NumberArray::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

template <typename T>
absl::StatusOr<std::vector<T>> NumbersAs(const NumberArray& array,
                                         absl::Span<const int64_t> columns, Fractions fractions,
                                         absl::string_view what) {
  const int64_t elements = array.elements();
  const bool all = columns.empty();
  const int64_t rows = all ? 1 : array.dims[0], width = rows == 0 ? 0 : elements / rows;
  const int64_t taken = all ? elements : static_cast<int64_t>(columns.size());
  std::vector<T> values(rows * taken);
  const absl::Status converted = WithElement(array.type, [&](auto element) -> absl::Status {
    const auto* const bytes = static_cast<const char*>(array.data);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < taken; ++i) {
        const int64_t column = all ? i : columns[i];
        std::memcpy(&element, bytes + (row * width + column) * sizeof element, sizeof element);
        const auto number = NumberOf(element);
        if (Convert(number, fractions, values[row * taken + i])) continue;
        return InvalidArgument(what, ": ",
                               all ? "element " : absl::StrCat("row ", row, ", column "), column,
                               " is ", +number, ", which is no ", Name(kTypeOf<T>));
      }
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(converted);
  return values;
}

template absl::StatusOr<std::vector<float>> NumbersAs(const NumberArray& array,
                                                      absl::Span<const int64_t> columns,
                                                      Fractions fractions, absl::string_view what);
template absl::StatusOr<std::vector<int32_t>> NumbersAs(const NumberArray& array,
                                                        absl::Span<const int64_t> columns,
                                                        Fractions fractions,
                                                        absl::string_view what);
template absl::StatusOr<std::vector<int64_t>> NumbersAs(const NumberArray& array,
                                                        absl::Span<const int64_t> columns,
                                                        Fractions fractions,
                                                        absl::string_view what);

absl::StatusOr<IdRows> IdRowsOf(const NumberArray& array, absl::Span<const int64_t> columns,
                                std::optional<int64_t> padding, absl::string_view what) {
  IdRows rows;
  ASSIGN_OR_RETURN(rows.ids, NumbersAs<int64_t>(array, columns, Fractions::kCut, what));
  const int64_t count = array.dims[0];
  const int64_t width = count == 0 ? 0 : static_cast<int64_t>(rows.ids.size()) / count;
  rows.counts.assign(count, static_cast<int32_t>(width));
  if (!padding.has_value()) return rows;
  const auto is_id = [&](int64_t id) { return id != *padding; };
  auto out = rows.ids.begin();
  for (int64_t row = 0; row < count; ++row) {
    const auto begin = rows.ids.begin() + row * width, end = begin + width;
    const auto first = std::find_if(begin, end, is_id);
    const auto last = std::find(first, end, *padding);
    if (std::any_of(last, end, is_id)) {
      return InvalidArgument(what, ": row ", row, ": the padding id ", *padding,
                             " between ids, want it before or behind them");
    }
    rows.counts[row] = static_cast<int32_t>(last - first);
    out = std::copy(first, last, out);
  }
  rows.ids.erase(out, rows.ids.end());
  return rows;
}

}  // namespace ulfd::engine
