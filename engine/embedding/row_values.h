// Rows of any format as floats, compiled once per instruction set like row_pooling_loops.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_VALUES_H_
#define ULFD_ENGINE_EMBEDDING_ROW_VALUES_H_

#include <cstddef>
#include <cstdint>

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {  // Every instruction set needs copies of its own.

constexpr int kLanes = 8;
constexpr size_t kInt8Head = 4;  // Scale and offset.

// Eight values of any alignment.
typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint8_t Bytes __attribute__((vector_size(8), aligned(1), may_alias));
typedef uint16_t Half __attribute__((aligned(1), may_alias));
typedef float AnyFloat __attribute__((aligned(1), may_alias));

// The values of finite halves, whose bits are the lower 16 of each word.  A product moves the
// exponent, which is exact for subnormal halves, too.
template <typename Floats, typename Unsigned>
inline Floats HalfToFloats(Unsigned half) {
  union {
    Unsigned bits;
    Floats value;
  } scaled = {(half & 0x7fffu) << 13};
  scaled.value *= 0x1p112f;
  scaled.bits |= (half & 0x8000u) << 16;
  return scaled.value;
}

inline float HalfValue(uint16_t half) { return HalfToFloats<float, uint32_t>(half); }

// Each: the row at `row`; At, one of its values; Load, eight from `column` on.  kNothing: rows of
// these words are -0.
struct Fp32Values {
  static constexpr uint32_t kNothing = 0x80000000;
  explicit Fp32Values(const void* row) : values(static_cast<const AnyFloat*>(row)) {}
  float At(int64_t column) const { return values[column]; }
  Vector Load(int64_t column) const { return *reinterpret_cast<const Vector*>(values + column); }
  const AnyFloat* values;
};

struct Fp16Values {
  static constexpr uint32_t kNothing = 0x80008000;
  explicit Fp16Values(const void* row) : values(static_cast<const Half*>(row)) {}
  float At(int64_t column) const { return HalfValue(values[column]); }
  Vector Load(int64_t column) const {
    return HalfToFloats<Vector, Words>(
        __builtin_convertvector(*reinterpret_cast<const Halves*>(values + column), Words));
  }
  const Half* values;
};

struct Bf16Values {
  static constexpr uint32_t kNothing = 0x80008000;
  explicit Bf16Values(const void* row) : values(static_cast<const Half*>(row)) {}
  float At(int64_t column) const {
    union {
      uint32_t bits;
      float value;
    } high = {uint32_t{values[column]} << 16};
    return high.value;
  }
  Vector Load(int64_t column) const {
    const Words words =
        __builtin_convertvector(*reinterpret_cast<const Halves*>(values + column), Words) << 16;
    return reinterpret_cast<const Vector&>(words);
  }
  const Half* values;
};

struct Int8Values {
  static constexpr uint32_t kNothing = 0x80008000;  // Scale and offset are -0.
  explicit Int8Values(const void* row)
      : scale(HalfValue(static_cast<const Half*>(row)[0])),
        offset(HalfValue(static_cast<const Half*>(row)[1])),
        bytes(static_cast<const uint8_t*>(row) + kInt8Head) {}
  float At(int64_t column) const { return static_cast<float>(bytes[column]) * scale + offset; }
  Vector Load(int64_t column) const {
    const Ints steps =
        __builtin_convertvector(*reinterpret_cast<const Bytes*>(bytes + column), Ints);
    return __builtin_convertvector(steps, Vector) * scale + offset;
  }
  const float scale, offset;
  const uint8_t* bytes;
};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_EMBEDDING_ROW_VALUES_H_
