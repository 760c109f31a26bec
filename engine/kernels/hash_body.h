// The sums of NH of 64 bytes at a time: see table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_HASH_BODY_H_
#define ULFD_ENGINE_KERNELS_HASH_BODY_H_

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace ulfd::engine {
namespace {

// Numbers of 64 bits, half of which are multiplied with the other half.  Compilers do not find the
// instruction for that.
#if defined(__AVX512F__)
using HashVec = __m512i;
inline HashVec LoadHash(const void* p) { return _mm512_loadu_si512(p); }
inline HashVec AddProducts(HashVec m, HashVec k, HashVec sum) {
  const HashVec x = _mm512_add_epi32(m, k);
  return _mm512_add_epi64(sum, _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
}
#elif defined(__AVX2__)
using HashVec = __m256i;
inline HashVec LoadHash(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline HashVec AddProducts(HashVec m, HashVec k, HashVec sum) {
  const HashVec x = _mm256_add_epi32(m, k);
  return _mm256_add_epi64(sum, _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
}
#else
using HashVec = uint64_t;
inline HashVec LoadHash(const void* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
inline HashVec AddProducts(HashVec m, HashVec k, HashVec sum) {
  const uint32_t low = static_cast<uint32_t>(m) + static_cast<uint32_t>(k);
  const uint32_t high = static_cast<uint32_t>(m >> 32) + static_cast<uint32_t>(k >> 32);
  return sum + uint64_t{low} * high;
}
#endif

// See AddHash in hash.h.
void HashBlocks(const void* data, int64_t blocks, const uint32_t* key, uint64_t* sums) {
  constexpr int kSums = 4, kBlock = 64, kShift = 8, kLanes = sizeof(HashVec) / sizeof(uint64_t);
  const char* from = static_cast<const char*>(data);
  HashVec sum[kSums] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    for (int part = 0; part < kBlock; part += sizeof(HashVec)) {
      const HashVec m = LoadHash(from);
      for (int t = 0; t < kSums; ++t) {
        sum[t] = AddProducts(m, LoadHash(key + t * kShift), sum[t]);
      }
      from += sizeof(HashVec);
      key += 2 * kLanes;
    }
  }
  for (int t = 0; t < kSums; ++t) {
    uint64_t lanes[kLanes];
    std::memcpy(lanes, &sum[t], sizeof lanes);
    for (const uint64_t lane : lanes) sums[t] += lane;
  }
}

}  // namespace
}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_KERNELS_HASH_BODY_H_
