// The sums of NH of 64 bytes at a time: see table.h for what must not be included here.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_KERNELS_HASH_BODY_H_
#define ULFD_ENGINE_KERNELS_HASH_BODY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Built once per instruction set; products of lanes are small.
// NOLINTBEGIN(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)
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

// Intrinsics add signed numbers up, which may overflow.
inline uint64_t SumOf(HashVec v) {
  constexpr size_t kNumberBytes = 8;
  uint64_t numbers[sizeof v / kNumberBytes];
  std::memcpy(numbers, &v, sizeof v);
  uint64_t sum = 0;
  for (const uint64_t number : numbers) sum += number;
  return sum;
}

// See KernelTable::hash.
void HashBytes(const void* data, int64_t bytes, const uint32_t* key, uint64_t* sums) {
  constexpr int kSums = 4, kBlock = 64, kWords = kBlock / sizeof(uint32_t);
  constexpr int kLaneWords = sizeof(HashVec) / sizeof(uint32_t);
  HashVec sum[kSums] = {};
  const auto add = [&](const char* block) {
    for (int w = 0; w < kWords; w += kLaneWords, block += sizeof(HashVec)) {
      const HashVec m = LoadHash(block);
      for (int t = 0; t < kSums; ++t) {
        sum[t] = AddProducts(m, LoadHash(key + t * kWords + w), sum[t]);
      }
    }
    key += kWords;
  };
  const char* from = static_cast<const char*>(data);
  const char* const end = from + bytes;
  for (; end - from >= kBlock; from += kBlock) add(from);
  if (from < end && bytes >= kBlock) {
    add(end - kBlock);
  } else if (from < end) {
    char block[kBlock] = {};
    std::memcpy(block, from, bytes);
    add(block);
  }
  for (int t = 0; t < kSums; ++t) sums[t] += SumOf(sum[t]);
}

}  // namespace
}  // namespace ulfd::engine
// NOLINTEND(misc-definitions-in-headers,bugprone-implicit-widening-of-multiplication-result)

#endif  // ULFD_ENGINE_KERNELS_HASH_BODY_H_
