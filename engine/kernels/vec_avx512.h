// Vectors of 16 floats in AVX-512 registers.  Only kernels_avx512.cc includes this (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_VEC_AVX512_H_
#define ULFD_ENGINE_KERNELS_VEC_AVX512_H_

#include <immintrin.h>

#include <cstdint>

// Built once per instruction set.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace ulfd::engine {
namespace {

// The bits of 2^(i / 32), less i << 18.
alignas(64) constexpr int32_t kAvx512Exp2[32] = {
    0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
    0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
    0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
    0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3};

// AVX-512F alone: bitwise operations on floats (DQ) go through integers.
struct Vec {
  static constexpr int kLanes = 16;
  // Of a tile of Fc: accumulators, leaving registers for the operands, and rows.
  static constexpr int kAccumulators = 24;
  static constexpr int kMaxTileRows = 12;
  using Mask = __mmask16;
  __m512 v;

  static Mask MaskOf(int64_t count) { return static_cast<Mask>((1u << count) - 1u); }
  static Vec Zero() { return {_mm512_setzero_ps()}; }
  static Vec Set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec Broadcast(const float* p) { return {_mm512_set1_ps(*p)}; }
  static Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  // Lanes outside the mask are 0 and their memory is not touched.
  static Vec LoadMasked(const float* p, Mask mask) { return {_mm512_maskz_loadu_ps(mask, p)}; }
  // Eight floats and zeros.
  static Vec LoadHalfPanel(const float* p) { return LoadMasked(p, 0xff); }
  // Eight floats, twice.
  static Vec LoadTwice(const float* p) {
    return {_mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(_mm256_loadu_ps(p))))};
  }
  // The low half of a and of b; of a the low and of b the high half; the high half.
  static Vec LowHalves(Vec a, Vec b) { return {_mm512_shuffle_f32x4(a.v, b.v, 0x44)}; }
  static Vec LowHigh(Vec a, Vec b) { return {_mm512_mask_blend_ps(0xff00, a.v, b.v)}; }
  static Vec HighHalf(Vec a) { return {_mm512_shuffle_f32x4(a.v, a.v, 0xee)}; }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StoreMasked(float* p, Mask mask) const { _mm512_mask_storeu_ps(p, mask, v); }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  // a * b + c, and c - a * b.
  static Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec Fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
  // a > b ? a : b, and a < b ? a : b: b if either is NaN.
  static Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  // a > b ? x : y.
  static Vec SelectGreater(Vec a, Vec b, Vec x, Vec y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), y.v, x.v)};
  }
  // a == b ? x : y.
  static Vec SelectEqual(Vec a, Vec b, Vec x, Vec y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), y.v, x.v)};
  }
  // To the nearest whole numbers, of two the even one.
  static Vec Round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static Vec Sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
  static Vec Xor(Vec a, Vec b) {
    return {
        _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
  }
  static Vec Or(Vec a, Vec b) {
    return {
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
  }
  static Vec And(Vec a, Vec b) {
    return {
        _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_castps_si512(b.v)))};
  }
  // 1 / x for normal x whose reciprocal is normal, within 6.1e-8.  A division keeps Intel's divider
  // busy for 16 cycles.
  static Vec Reciprocal(Vec x) {
    const Vec y = {_mm512_rcp14_ps(x.v)};
    return Fma(y, Fnma(x, y, Set(1.0f)), y);
  }
  // Within 6.1e-5.
  static Vec CoarseReciprocal(Vec x) { return {_mm512_rcp14_ps(x.v)}; }
  // 2^(n / kExpSteps) for an x of n + 1.5 * 2^23, if that is a normal number.
  static constexpr int kExpSteps = 32;
  static Vec Exp2Bits(Vec x) {
    const __m512i bits = _mm512_castps_si512(x.v);
    const __m512i power = _mm512_permutex2var_epi32(_mm512_load_si512(kAvx512Exp2), bits,
                                                    _mm512_load_si512(kAvx512Exp2 + 16));
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(bits, 18), power))};
  }
  // The bits of x, shifted left by 23, plus those of `base`, as integers.
  static Vec ShiftToExponent(Vec x, Vec base) {
    const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(x.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_castps_si512(base.v)))};
  }
  // The bits of x, shifted right by 23 (for x >= 0 the exponent + 127), as a number.
  static Vec ExponentBits(Vec x) {
    return {_mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_castps_si512(x.v), 23))};
  }
  // The bits of x, integers with a sign, as numbers.
  static Vec FromIntegers(Vec x) { return {_mm512_cvtepi32_ps(_mm512_castps_si512(x.v))}; }
  // The sums of the lanes, of four vectors at once.
  static void Sum4(Vec a, Vec b, Vec c, Vec d, float* out) {
    const __m256 t =
        _mm256_hadd_ps(_mm256_hadd_ps(Fold(a), Fold(b)), _mm256_hadd_ps(Fold(c), Fold(d)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
  }

 private:
  // The sums of the two halves.
  static __m256 Fold(Vec a) {
    const __m512d d = _mm512_castps_pd(a.v);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(d, 1));
    return _mm256_add_ps(_mm512_castps512_ps256(a.v), high);
  }
};

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers)

#endif  // ULFD_ENGINE_KERNELS_VEC_AVX512_H_
