// Vectors of 8 floats in two registers of Advanced SIMD (AArch64).  Only kernels_neon.cc includes
// this (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_VEC_NEON_H_
#define ULFD_ENGINE_KERNELS_VEC_NEON_H_

#include <arm_neon.h>

#include <cstdint>

namespace ulfd::engine {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  // Of a tile of Fc: accumulators, leaving registers for the operands, and rows.
  static constexpr int kAccumulators = 12;
  static constexpr int kMaxTileRows = 8;
  using Mask = int64_t;  // How many lanes.
  float32x4_t low, high;

  static Mask MaskOf(int64_t count) { return count; }
  static Vec Zero() { return Set(0.0f); }
  static Vec Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static Vec Broadcast(const float* p) {
    const float32x4_t x = vld1q_dup_f32(p);
    return {x, x};
  }
  static Vec Load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  // Lanes outside the mask are 0 and their memory is not touched.
  static Vec LoadMasked(const float* p, Mask mask) {
    float x[kLanes] = {};
    for (int64_t i = 0; i < mask; ++i) x[i] = p[i];
    return Load(x);
  }
  // Eight floats and zeros.
  static Vec LoadHalfPanel(const float* p) { return Load(p); }
  void Store(float* p) const {
    vst1q_f32(p, low);
    vst1q_f32(p + 4, high);
  }
  void StoreMasked(float* p, Mask mask) const {
    float x[kLanes];
    Store(x);
    for (int64_t i = 0; i < mask; ++i) p[i] = x[i];
  }

  friend Vec operator+(Vec a, Vec b) {
    return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)};
  }
  friend Vec operator-(Vec a, Vec b) {
    return {vsubq_f32(a.low, b.low), vsubq_f32(a.high, b.high)};
  }
  friend Vec operator*(Vec a, Vec b) {
    return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)};
  }
  friend Vec operator/(Vec a, Vec b) {
    return {vdivq_f32(a.low, b.low), vdivq_f32(a.high, b.high)};
  }
  // a * b + c, and c - a * b.
  static Vec Fma(Vec a, Vec b, Vec c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  static Vec Fnma(Vec a, Vec b, Vec c) {
    return {vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
  }
  // a > b ? a : b, and a < b ? a : b: b if either is NaN, unlike fmax and fmin.
  static Vec Max(Vec a, Vec b) { return SelectGreater(a, b, a, b); }
  static Vec Min(Vec a, Vec b) { return SelectGreater(b, a, a, b); }
  // a > b ? x : y.
  static Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
    return {vbslq_f32(vcgtq_f32(a.low, b.low), x.low, y.low),
            vbslq_f32(vcgtq_f32(a.high, b.high), x.high, y.high)};
  }
  // a == b ? x : y.
  static Vec SelectEqual(Vec a, Vec b, Vec x, Vec y) {
    return {vbslq_f32(vceqq_f32(a.low, b.low), x.low, y.low),
            vbslq_f32(vceqq_f32(a.high, b.high), x.high, y.high)};
  }
  // To the nearest whole numbers, of two the even one.
  static Vec Round(Vec a) { return {vrndnq_f32(a.low), vrndnq_f32(a.high)}; }
  static Vec Sqrt(Vec a) { return {vsqrtq_f32(a.low), vsqrtq_f32(a.high)}; }
  static Vec Xor(Vec a, Vec b) {
    return {Floats(veorq_u32(Bits(a.low), Bits(b.low))),
            Floats(veorq_u32(Bits(a.high), Bits(b.high)))};
  }
  static Vec Or(Vec a, Vec b) {
    return {Floats(vorrq_u32(Bits(a.low), Bits(b.low))),
            Floats(vorrq_u32(Bits(a.high), Bits(b.high)))};
  }
  static Vec And(Vec a, Vec b) {
    return {Floats(vandq_u32(Bits(a.low), Bits(b.low))),
            Floats(vandq_u32(Bits(a.high), Bits(b.high)))};
  }
  static Vec Reciprocal(Vec x) { return Set(1.0f) / x; }
  // 2^(n / kExpSteps) for an x of n + 1.5 * 2^23, if that is a normal number.
  static constexpr int kExpSteps = 1;
  static Vec Exp2Bits(Vec x) { return ShiftToExponent(x, Set(1.0f)); }
  // The bits of x, shifted left by 23, plus those of `base`, as integers.
  static Vec ShiftToExponent(Vec x, Vec base) {
    return {Floats(vaddq_u32(vshlq_n_u32(Bits(x.low), 23), Bits(base.low))),
            Floats(vaddq_u32(vshlq_n_u32(Bits(x.high), 23), Bits(base.high)))};
  }
  // The bits of x, shifted right by 23 (for x >= 0 the exponent + 127), as a number.
  static Vec ExponentBits(Vec x) {
    return {vcvtq_f32_u32(vshrq_n_u32(Bits(x.low), 23)),
            vcvtq_f32_u32(vshrq_n_u32(Bits(x.high), 23))};
  }
  // The bits of x, integers with a sign, as numbers.
  static Vec FromIntegers(Vec x) {
    return {vcvtq_f32_s32(vreinterpretq_s32_f32(x.low)),
            vcvtq_f32_s32(vreinterpretq_s32_f32(x.high))};
  }
  // The sums of the lanes, of four vectors at once.
  static void Sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const float32x4_t ab = vpaddq_f32(vaddq_f32(a.low, a.high), vaddq_f32(b.low, b.high));
    const float32x4_t cd = vpaddq_f32(vaddq_f32(c.low, c.high), vaddq_f32(d.low, d.high));
    vst1q_f32(out, vpaddq_f32(ab, cd));
  }

 private:
  static uint32x4_t Bits(float32x4_t x) { return vreinterpretq_u32_f32(x); }
  static float32x4_t Floats(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
};

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_VEC_NEON_H_
