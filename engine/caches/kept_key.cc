// Keys by NH.
// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/kept_key.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "engine/kernels/table.h"

namespace ulfd::engine {

namespace {

constexpr int64_t kMoreBlocks = kHashMoreWords / kHashBlockWords;

}  // namespace

// Words to hash with, drawn once per process.
const uint32_t* KeptHasher::Secret() {
  struct alignas(kHashBlockBytes) Block {
    uint32_t words[kHashBlockWords];
  };
  static const std::vector<Block> secret = [] {
    std::vector<Block> blocks(kChapterBlocks + kMaxChapters + 2 * kMoreBlocks);
    for (Block& block : blocks) {
      // std::random_device reads word by word, which would hold the first request up for 20 ms.
      if (getentropy(block.words, sizeof block.words) != 0) std::abort();  // Linux before 3.17.
    }
    return blocks;
  }();
  return secret[0].words;
}

void KeptHasher::AddChapter(const KeptKey& chapter, int64_t number, KeptKey& whole) {
  if (number >= kMaxChapters) return;
  Kernels().hash(chapter.words.data(), sizeof chapter.words,
                 Secret() + (kChapterBlocks + kMoreBlocks + number) * kHashBlockWords,
                 whole.words.data());
}

void KeptHasher::Add(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  for (auto left = static_cast<int64_t>(bytes); left > 0;) {
    if (blocks_ == kChapterBlocks) {
      AddChapter(chapter_, chapters_++, whole_);
      chapter_ = {};
      blocks_ = 0;
    }
    const int64_t piece = std::min(left, (kChapterBlocks - blocks_) * kHashBlockBytes);
    Kernels().hash(from, piece, Secret() + blocks_ * kHashBlockWords, chapter_.words.data());
    blocks_ += (piece + kHashBlockBytes - 1) / kHashBlockBytes;
    from += piece;
    left -= piece;
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
