// Vectors of 16 floats in AVX-512 registers.  Only kernels_avx512.cc includes this (see table.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_VEC_AVX512_H_
#define ULFD_ENGINE_KERNELS_VEC_AVX512_H_

#include <immintrin.h>

#include <cstdint>

namespace ulfd::engine {
namespace {

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
  // The bits of x, shifted left by 23, plus those of `base`, as integers.
  static Vec ShiftToExponent(Vec x, Vec base) {
    const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(x.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_castps_si512(base.v)))};
  }
  // The bits of x, shifted right by 23 (for x >= 0 the exponent + 127), as a number.
  static Vec ExponentBits(Vec x) {
    return {_mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_castps_si512(x.v), 23))};
  }
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

#endif  // ULFD_ENGINE_KERNELS_VEC_AVX512_H_
