// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/embedding/row_values.h"

namespace ulfd::engine {
namespace {

constexpr std::array<absl::string_view, kRowFormats> kNames = {"fp32", "fp16", "bf16", "int8"};
constexpr uint16_t kHalfInfinity = 0x7c00;

template <typename To, typename From>
To Bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The nearest half, ties to even; infinity from 65520 on.  REQUIRES: finite.
uint16_t ToHalf(float value) {
  auto bits = Bits<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits >= 0x47800000) return sign | kHalfInfinity;
  if (bits <
      0x38800000) {  // Subnormal: to add 0.5 leaves the half's bits in the fraction, rounded.
    const float shifted = Bits<float>(bits) + 0.5f;
    return sign | static_cast<uint16_t>(Bits<uint32_t>(shifted) - Bits<uint32_t>(0.5f));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits - (112u << 23)) >> 13);
}

// Just above and below, of finite halves.
uint16_t HalfUp(uint16_t half) {
  if (half == 0x8000) return 1;
  return half & 0x8000 ? half - 1 : half + 1;
}
uint16_t HalfDown(uint16_t half) { return HalfUp(half ^ 0x8000) ^ 0x8000; }

bool EncodeHalf(const float* row, int64_t dim, char* to) {
  for (int64_t c = 0; c < dim; ++c) {
    const uint16_t half = ToHalf(row[c]);
    if ((half & kHalfInfinity) == kHalfInfinity) return false;
    std::memcpy(to + 2 * c, &half, sizeof half);
  }
  return true;
}

bool EncodeBf16(const float* row, int64_t dim, char* to) {
  for (int64_t c = 0; c < dim; ++c) {
    auto bits = Bits<uint32_t>(row[c]);
    bits += 0x7fff + (bits >> 16 & 1);
    const auto high = static_cast<uint16_t>(bits >> 16);
    if ((high & 0x7f80) == 0x7f80) return false;
    std::memcpy(to + 2 * c, &high, sizeof high);
  }
  return true;
}

bool EncodeInt8(const float* row, int64_t dim, char* to) {
  const auto [low, high] = std::minmax_element(row, row + dim);
  uint16_t offset = ToHalf(*low);
  if ((offset & kHalfInfinity) == kHalfInfinity) return false;
  if (HalfValue(offset) > *low) offset = HalfDown(offset);
  const float zero = HalfValue(offset);
  uint16_t scale = ToHalf((*high - zero) / 255);
  // Rounded up, so that 255 steps reach the largest value.
  while (HalfValue(scale) * 255 + zero < *high) scale = HalfUp(scale);
  if ((scale & kHalfInfinity) == kHalfInfinity || (offset & kHalfInfinity) == kHalfInfinity) {
    return false;
  }
  const float step = HalfValue(scale);
  std::memcpy(to, &scale, sizeof scale);
  std::memcpy(to + 2, &offset, sizeof offset);
  for (int64_t c = 0; c < dim; ++c) {
    const float steps = step == 0 ? 0 : std::nearbyint((row[c] - zero) / step);
    to[kInt8Head + c] = static_cast<char>(static_cast<uint8_t>(std::clamp(steps, 0.0f, 255.0f)));
  }
  return true;
}

template <typename Values>
void Decode(const char* row, int64_t dim, float* to) {
  const Values values(row);
  for (int64_t c = 0; c < dim; ++c) to[c] = values.At(c);
}

bool AllFinite(const float* row, int64_t dim) {
  return std::all_of(row, row + dim, [](float value) { return std::isfinite(value); });
}

}  // namespace

absl::string_view Name(RowFormat format) { return kNames[static_cast<size_t>(format)]; }

std::optional<RowFormat> RowFormatOf(absl::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<RowFormat>(it - kNames.begin());
}

size_t RowBytes(RowFormat format, int64_t dim) {
  const auto values = static_cast<size_t>(dim);
  switch (format) {
    case RowFormat::kFp32:
      return values * 4;
    case RowFormat::kFp16:
    case RowFormat::kBf16:
      return values * 2;
    case RowFormat::kInt8:
      break;
  }
  return kInt8Head + values;
}

bool EncodeRow(RowFormat format, const float* row, int64_t dim, char* to) {
  if (!AllFinite(row, dim)) return false;
  switch (format) {
    case RowFormat::kFp32:
      std::memcpy(to, row, static_cast<size_t>(dim) * sizeof(float));
      return true;
    case RowFormat::kFp16:
      return EncodeHalf(row, dim, to);
    case RowFormat::kBf16:
      return EncodeBf16(row, dim, to);
    case RowFormat::kInt8:
      break;
  }
  return EncodeInt8(row, dim, to);
}

void DecodeRow(RowFormat format, const char* row, int64_t dim, float* to) {
  switch (format) {
    case RowFormat::kFp32:
      return Decode<Fp32Values>(row, dim, to);
    case RowFormat::kFp16:
      return Decode<Fp16Values>(row, dim, to);
    case RowFormat::kBf16:
      return Decode<Bf16Values>(row, dim, to);
    case RowFormat::kInt8:
      return Decode<Int8Values>(row, dim, to);
  }
}

bool IsFinite(RowFormat format, const char* row, int64_t dim) {
  std::vector<float> values(static_cast<size_t>(dim));
  DecodeRow(format, row, dim, values.data());
  return AllFinite(values.data(), dim);
}

}  // namespace ulfd::engine
