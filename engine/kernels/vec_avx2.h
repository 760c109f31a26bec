// Vectors of 8 floats in AVX2 registers.  Only kernels_avx2.cc includes this (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_VEC_AVX2_H_
#define ULFD_ENGINE_KERNELS_VEC_AVX2_H_

#include <immintrin.h>

#include <cstdint>

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// The first so many lanes.
constexpr int32_t kAvx2MaskSource[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};

// The bits of 2^(i / 8), less i << 20.
alignas(32) constexpr int32_t kAvx2Exp2[8] = {0x3f800000, 0x3f7b95c2, 0x3f7837f0, 0x3f75fed7,
                                              0x3f7504f3, 0x3f75672a, 0x3f7744fd, 0x3f7ac0c7};

struct Vec {
  static constexpr int kLanes = 8;
  // Of a tile of Fc: accumulators, leaving registers for the operands, and rows.
  static constexpr int kAccumulators = 12;
  static constexpr int kMaxTileRows = 8;
  using Mask = __m256i;
  __m256 v;

  static Mask MaskOf(int64_t count) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kAvx2MaskSource + 8 - count));
  }
  static Vec Zero() { return {_mm256_setzero_ps()}; }
  static Vec Set(float x) { return {_mm256_set1_ps(x)}; }
  static Vec Broadcast(const float* p) { return {_mm256_broadcast_ss(p)}; }
  static Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  // Lanes outside the mask are 0 and their memory is not touched.
  static Vec LoadMasked(const float* p, Mask mask) { return {_mm256_maskload_ps(p, mask)}; }
  // Eight floats and zeros.
  static Vec LoadHalfPanel(const float* p) { return Load(p); }
  void Store(float* p) const { _mm256_storeu_ps(p, v); }
  void StoreMasked(float* p, Mask mask) const { _mm256_maskstore_ps(p, mask, v); }

  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  // a * b + c, and c - a * b.
  static Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec Fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
  // a > b ? a : b, and a < b ? a : b: b if either is NaN.
  static Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  // a > b ? x : y.
  static Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
    return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ))};
  }
  // a == b ? x : y.
  static Vec SelectEqual(Vec a, Vec b, Vec x, Vec y) {
    return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))};
  }
  // To the nearest whole numbers, of two the even one.
  static Vec Round(Vec a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static Vec Sqrt(Vec a) { return {_mm256_sqrt_ps(a.v)}; }
  static Vec Xor(Vec a, Vec b) { return {_mm256_xor_ps(a.v, b.v)}; }
  static Vec Or(Vec a, Vec b) { return {_mm256_or_ps(a.v, b.v)}; }
  static Vec And(Vec a, Vec b) { return {_mm256_and_ps(a.v, b.v)}; }
  static Vec Reciprocal(Vec x) { return Set(1.0f) / x; }
  // 2^(n / kExpSteps) for an x of n + 1.5 * 2^23, if that is a normal number.
  static constexpr int kExpSteps = 8;
  static Vec Exp2Bits(Vec x) {
    const __m256i bits = _mm256_castps_si256(x.v);
    const __m256i table = _mm256_load_si256(reinterpret_cast<const __m256i*>(kAvx2Exp2));
    const __m256i power = _mm256_permutevar8x32_epi32(table, bits);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(bits, 20), power))};
  }
  // The bits of x, shifted left by 23, plus those of `base`, as integers.
  static Vec ShiftToExponent(Vec x, Vec base) {
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(x.v), 23),
                                                 _mm256_castps_si256(base.v)))};
  }
  // The bits of x, shifted right by 23 (for x >= 0 the exponent + 127), as a number.
  static Vec ExponentBits(Vec x) {
    return {_mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_castps_si256(x.v), 23))};
  }
  // The bits of x, integers with a sign, as numbers.
  static Vec FromIntegers(Vec x) { return {_mm256_cvtepi32_ps(_mm256_castps_si256(x.v))}; }
  // The sums of the lanes, of four vectors at once.
  static void Sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
  }
};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_VEC_AVX2_H_
