// Vectors of 8 floats for any target: two vectors of the compiler's own of 16 bytes each, which are
// registers wherever the baseline has such (SSE2, NEON).  Only kernels_portable.cc includes this
// (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_VEC_PORTABLE_H_
#define ULFD_ENGINE_KERNELS_VEC_PORTABLE_H_

#include <cstdint>

namespace ulfd::engine {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  // Of a tile of Fc: accumulators, leaving registers for the operands, and rows.
  static constexpr int kAccumulators = 6;
  static constexpr int kMaxTileRows = 6;
  using Mask = int64_t;  // How many lanes.
  using F4 = float __attribute__((vector_size(16)));
  using I4 = int32_t __attribute__((vector_size(16)));
  F4 low, high;

  static Mask MaskOf(int64_t count) { return count; }
  static Vec Zero() { return Set(0.0f); }
  static Vec Set(float x) { return {F4{x, x, x, x}, F4{x, x, x, x}}; }
  static Vec Broadcast(const float* p) { return Set(*p); }
  static Vec Load(const float* p) {
    Vec x;
    __builtin_memcpy(&x.low, p, sizeof(F4));
    __builtin_memcpy(&x.high, p + 4, sizeof(F4));
    return x;
  }
  // Lanes outside the mask are 0 and their memory is not touched.
  static Vec LoadMasked(const float* p, Mask mask) {
    float x[kLanes] = {};
    for (int64_t i = 0; i < mask; ++i) x[i] = p[i];
    return Load(x);
  }
  // Eight floats and zeros.
  static Vec LoadHalfPanel(const float* p) { return Load(p); }
  void Store(float* p) const {
    __builtin_memcpy(p, &low, sizeof(F4));
    __builtin_memcpy(p + 4, &high, sizeof(F4));
  }
  void StoreMasked(float* p, Mask mask) const {
    float x[kLanes];
    Store(x);
    for (int64_t i = 0; i < mask; ++i) p[i] = x[i];
  }

  friend Vec operator+(Vec a, Vec b) { return {a.low + b.low, a.high + b.high}; }
  friend Vec operator-(Vec a, Vec b) { return {a.low - b.low, a.high - b.high}; }
  friend Vec operator*(Vec a, Vec b) { return {a.low * b.low, a.high * b.high}; }
  friend Vec operator/(Vec a, Vec b) { return {a.low / b.low, a.high / b.high}; }
  // a * b + c, and c - a * b (rounded twice).
  static Vec Fma(Vec a, Vec b, Vec c) { return a * b + c; }
  static Vec Fnma(Vec a, Vec b, Vec c) { return c - a * b; }
  // a > b ? a : b, and a < b ? a : b: b if either is NaN.
  static Vec Max(Vec a, Vec b) { return SelectGreater(a, b, a, b); }
  static Vec Min(Vec a, Vec b) { return SelectGreater(b, a, a, b); }
  // a > b ? x : y.
  static Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
    return {Select(a.low > b.low, x.low, y.low), Select(a.high > b.high, x.high, y.high)};
  }
  // a == b ? x : y.
  static Vec SelectEqual(Vec a, Vec b, Vec x, Vec y) {
    return {Select(a.low == b.low, x.low, y.low), Select(a.high == b.high, x.high, y.high)};
  }
  // To the nearest whole numbers, of two the even one.
  static Vec Round(Vec a) {
    const Vec sign = And(a, Set(-0.0f)), magnitude = Xor(a, sign);
    const Vec whole = Set(8388608.0f);  // 2^23: no number beyond has a fraction.
    const Vec nearest = magnitude + whole - whole;
    return Or(SelectGreater(whole, magnitude, nearest, magnitude), sign);
  }
  static Vec Sqrt(Vec a) {
    for (int i = 0; i < 4; ++i) {
      a.low[i] = __builtin_sqrtf(a.low[i]);
      a.high[i] = __builtin_sqrtf(a.high[i]);
    }
    return a;
  }
  static Vec Xor(Vec a, Vec b) {
    return {Floats(Bits(a.low) ^ Bits(b.low)), Floats(Bits(a.high) ^ Bits(b.high))};
  }
  static Vec Or(Vec a, Vec b) {
    return {Floats(Bits(a.low) | Bits(b.low)), Floats(Bits(a.high) | Bits(b.high))};
  }
  static Vec And(Vec a, Vec b) {
    return {Floats(Bits(a.low) & Bits(b.low)), Floats(Bits(a.high) & Bits(b.high))};
  }
  static Vec Reciprocal(Vec x) { return Set(1.0f) / x; }
  // 2^(n / kExpSteps) for an x of n + 1.5 * 2^23, if that is a normal number.
  static constexpr int kExpSteps = 1;
  static Vec Exp2Bits(Vec x) { return ShiftToExponent(x, Set(1.0f)); }
  // The bits of x, shifted left by 23, plus those of `base`, as integers.
  static Vec ShiftToExponent(Vec x, Vec base) {
    using U4 = uint32_t __attribute__((vector_size(16)));  // Wraps around.
    const U4 low = (reinterpret_cast<U4>(x.low) << 23) + reinterpret_cast<U4>(base.low);
    const U4 high = (reinterpret_cast<U4>(x.high) << 23) + reinterpret_cast<U4>(base.high);
    return {reinterpret_cast<F4>(low), reinterpret_cast<F4>(high)};
  }
  // The bits of x, shifted right by 23 (for x >= 0 the exponent + 127), as a number.
  static Vec ExponentBits(Vec x) {
    return {__builtin_convertvector(Bits(x.low) >> 23 & 0x1ff, F4),
            __builtin_convertvector(Bits(x.high) >> 23 & 0x1ff, F4)};
  }
  // The bits of x, integers with a sign, as numbers.
  static Vec FromIntegers(Vec x) {
    return {__builtin_convertvector(Bits(x.low), F4), __builtin_convertvector(Bits(x.high), F4)};
  }
  // The sums of the lanes, of four vectors at once.
  static void Sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const Vec all[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) {
      const F4 s = all[i].low + all[i].high;
      out[i] = (s[0] + s[1]) + (s[2] + s[3]);
    }
  }

 private:
  static I4 Bits(F4 x) { return reinterpret_cast<I4>(x); }
  static F4 Floats(I4 x) { return reinterpret_cast<F4>(x); }
  static F4 Select(I4 mask, F4 x, F4 y) { return Floats((mask & Bits(x)) | (~mask & Bits(y))); }
};

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_VEC_PORTABLE_H_
