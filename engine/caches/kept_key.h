// What users and ads whose results are kept are known by: a secret hash of what they are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_CACHES_KEPT_KEY_H_
#define ULFD_ENGINE_CACHES_KEPT_KEY_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace ulfd::engine {

// Of one process: others hash by other secrets.
struct KeptKey {
  std::array<uint64_t, 4> words{};

  friend bool operator==(const KeptKey& a, const KeptKey& b) {
    uint64_t differ = 0;  // The compiler would call memcmp.
    for (size_t w = 0; w < a.words.size(); ++w) differ |= a.words[w] ^ b.words[w];
    return differ == 0;
  }
  uint64_t hash() const {
    // The words are sums of products: their low bits are not evenly spread, others are.
    const uint64_t mixed = (words[0] ^ words[1] ^ words[2] ^ words[3]) * 0x9e3779b97f4a7c15ULL;
    return mixed ^ (mixed >> 32);
  }
};

struct KeptKeyHash {
  size_t operator()(const KeptKey& key) const { return key.hash(); }
};

// Hashes pieces of memory, each as long as those before it say, by numbers that nobody outside of
// this process knows: two contents that differ have the same key with a probability of about
// 2^-128, whoever chose them.
class KeptHasher {
 public:
  void Add(const void* data, size_t bytes);
  void AddCount(uint64_t count) { Add(&count, sizeof count); }
  // Of everything so far.  What is longer than 16 MB gets a key that no other content has.
  KeptKey key() const;

 private:
  // Chapters have numbers of their own; where there are several, their keys are hashed again, by
  // other numbers.
  static constexpr int64_t kChapterBlocks = 1024, kMaxChapters = 256;
  static const uint32_t* Secret();
  static void AddChapter(const KeptKey& chapter, int64_t number, KeptKey& whole);

  int64_t blocks_ = 0, chapters_ = 0;  // Blocks of the chapter that began last; chapters before it.
  KeptKey chapter_, whole_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_CACHES_KEPT_KEY_H_
