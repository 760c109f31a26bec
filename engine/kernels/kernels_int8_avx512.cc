// The kernels for AVX512-VNNI.  See table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/vec_avx512.h"

namespace ulfd::engine {
namespace {

constexpr bool kCoarse = true, kInt8 = true;

// sum + the products of the four pairs of bytes in each lane; those of a have no sign.  The
// intrinsic wants vectors of integers: GCC 12 then keeps the sums of a tile in memory.
inline Vec MultiplyAdd(Vec a, Vec b, Vec sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.v) : "v"(a.v), "v"(b.v));
  return sum;
}

// To the nearest whole numbers, at most 255; 0 for less and for NaN.
inline void StoreBytes(Vec x, uint8_t* to) {
  const __m512i whole = _mm512_max_epi32(_mm512_cvtps_epi32(x.v), _mm512_setzero_si512());
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtusepi32_epi8(whole));
}

inline float LeastOf(Vec x) { return _mm512_reduce_min_ps(x.v); }
inline float MostOf(Vec x) { return _mm512_reduce_max_ps(x.v); }
inline float SumOf(Vec x) { return _mm512_reduce_add_ps(x.v); }

}  // namespace
}  // namespace ulfd::engine

#include "engine/kernels/int8_body.h"

namespace ulfd::engine {

const LowTable& Int8Avx512Kernels() { return kTable; }

}  // namespace ulfd::engine
