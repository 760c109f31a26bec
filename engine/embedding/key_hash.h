// The hash of a key that every index of the tables starts from.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_KEY_HASH_H_
#define ULFD_ENGINE_EMBEDDING_KEY_HASH_H_

#include <cstddef>
#include <cstdint>
#include <random>

namespace ulfd::engine {

// The finaliser of MurmurHash3: every bit of the key changes every bit of the hash with a
// probability near 1/2, and different keys have different hashes.
inline uint64_t HashKey(int64_t key) {
  auto x = static_cast<uint64_t>(key);
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

// HashKey backwards.
inline int64_t KeyOfHash(uint64_t hash) {
  uint64_t x = hash ^ (hash >> 33);
  x *= 0x9cb4b2f8129337dbULL;  // 1 / 0xc4ceb9fe1a85ec53, modulo 2^64.
  x ^= x >> 33;
  x *= 0x4f74430c22a54005ULL;  // 1 / 0xff51afd7ed558ccd.
  return static_cast<int64_t>(x ^ (x >> 33));
}

// Of a HashKey, for tables in memory: keys that somebody chose to meet in one place do not meet
// there, because nobody knows the number of this process.
inline uint64_t SecretHash(uint64_t hash) {
  static const uint64_t kSecret = [] {
    std::random_device random;
    return (uint64_t{random()} << 32) | random() | 1;
  }();
  const unsigned __int128 product = static_cast<unsigned __int128>(hash) * kSecret;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Of containers.
struct KeyHash {
  size_t operator()(int64_t key) const { return SecretHash(HashKey(key)); }
};

// The high half of hash * count: spreads hashes over 0 .. count - 1 in their order, without a
// division.
inline size_t ScaleHash(uint64_t hash, size_t count) {
  return static_cast<size_t>((static_cast<unsigned __int128>(hash) * count) >> 64);
}

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_KEY_HASH_H_
