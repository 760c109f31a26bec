// Keys by NH.
// SPDX-License-Identifier: Apache-2.0
#include "engine/runtime/kept_key.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/hash.h"

namespace ulfd::engine {

// Words to hash with, drawn once per process.
const uint32_t* KeptHasher::Secret() {
  static const std::vector<uint32_t> secret = [] {
    std::vector<uint32_t> words((kChapterBlocks + kMaxChapters) * kHashBlockWords +
                                2 * kHashMoreWords);
    std::random_device random("/dev/urandom");  // The instruction for that takes longer.
    for (uint32_t& word : words) word = random();
    return words;
  }();
  return secret.data();
}

void KeptHasher::AddChapter(const KeptKey& chapter, int64_t number, KeptKey& whole) {
  if (number >= kMaxChapters) return;
  char block[kHashBlockBytes] = {};
  std::memcpy(block, chapter.words.data(), sizeof chapter.words);
  AddHash(block, 1, Secret() + (kChapterBlocks + number) * kHashBlockWords + kHashMoreWords,
          whole.words.data());
}

void KeptHasher::Add(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (blocks_ == kChapterBlocks) {
      AddChapter(chapter_, chapters_++, whole_);
      chapter_ = {};
      blocks_ = 0;
    }
    const uint32_t* const secret = Secret() + blocks_ * kHashBlockWords;
    const int64_t whole =
        std::min(static_cast<int64_t>(bytes) / kHashBlockBytes, kChapterBlocks - blocks_);
    if (whole > 0) {
      AddHash(from, whole, secret, chapter_.words.data());
      blocks_ += whole;
      from += whole * kHashBlockBytes;
      bytes -= whole * kHashBlockBytes;
      continue;
    }
    char last[kHashBlockBytes] = {};
    std::memcpy(last, from, bytes);
    AddHash(last, 1, secret, chapter_.words.data());
    ++blocks_;
    return;
  }
}

KeptKey KeptHasher::key() const {
  if (chapters_ == 0) return chapter_;
  if (chapters_ >= kMaxChapters) {
    static std::atomic<uint64_t> longer{0};
    return {{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ++longer}};
  }
  KeptKey key = whole_;
  AddChapter(chapter_, chapters_, key);
  return key;
}

}  // namespace ulfd::engine
