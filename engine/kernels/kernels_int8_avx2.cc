// The kernels for AVX-VNNI.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx2.h"

namespace ulfd::engine {
namespace {

constexpr bool kCoarse = false, kInt8 = true;

// sum + the products of the four pairs of bytes in each lane; those of a have no sign.  The
// intrinsic wants vectors of integers: GCC 12 then keeps the sums of a tile in memory.
inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.v) : "x"(a.v), "x"(b.v));
  return sum;
}

// To the nearest whole numbers, at most 255; 0 for less and for NaN.
inline void StoreBytes(Vec x, uint8_t* to) {
  const __m256i whole = _mm256_cvtps_epi32(x.v);
  const __m128i halves =
      _mm_packus_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(halves, halves));
}

// The lanes by twos, until one is left.
template <class Join>
inline float Joined(Vec x, Join join) {
  __m128 a = join(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  a = join(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(join(a, _mm_movehdup_ps(a)));
}
inline float LeastOf(Vec x) {
  return Joined(x, [](__m128 a, __m128 b) { return _mm_min_ps(a, b); });
}
inline float MostOf(Vec x) {
  return Joined(x, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
inline float SumOf(Vec x) {
  return Joined(x, [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}

}  // namespace
}  // namespace ulfd::engine

#include "engine/kernels/int8_body.h"

namespace ulfd::engine {

const LowTable& Int8Avx2Kernels() { return kTable; }

}  // namespace ulfd::engine
