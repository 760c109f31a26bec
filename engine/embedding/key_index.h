// An open-addressing hash index: int64 keys -> row numbers.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_KEY_INDEX_H_
#define ULFD_ENGINE_EMBEDDING_KEY_INDEX_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"

namespace ulfd::engine {

// Buckets are one cache line of five slots each; a bucket that is full overflows into the next one.
// At the highest load, 0.7, 86 % of the buckets do not overflow, so that a lookup mostly reads one
// line.  Every int64 is a key like any other.  Concurrent reads are safe; writes are not.
class KeyIndex {
 public:
  static constexpr uint32_t kNone = 0xffffffff;  // No such key; also the number of rows that fit.

  // Makes room for `keys` keys, keeping those that are there.  RESOURCE_EXHAUSTED if there is no
  // memory.
  absl::Status Reserve(size_t keys);
  // Inserts `key` unless it is there; returns the row that it has then.
  absl::StatusOr<uint32_t> Insert(int64_t key, uint32_t row);

  // The row of `key`, or kNone.
  uint32_t Find(int64_t key) const {
    if (bucket_count_ == 0) return kNone;
    for (size_t b = Home(key);; b = b + 1 == bucket_count_ ? 0 : b + 1) {
      const Bucket& bucket = buckets()[b];
      for (uint32_t i = 0; i < bucket.used; ++i) {
        if (bucket.keys[i] == key) return bucket.rows[i];
      }
      if (bucket.used < kSlots) return kNone;
    }
  }
  // Hints the cache line where Find begins.
  void Prefetch(int64_t key) const {
    if (bucket_count_ != 0) __builtin_prefetch(&buckets()[Home(key)]);
  }

  size_t size() const { return size_; }
  size_t bytes() const { return memory_.bytes(); }
  // Keys that fit before the index grows.
  size_t capacity() const { return bucket_count_ * kSlots * 7 / 10; }

 private:
  static constexpr uint32_t kSlots = 5;
  struct alignas(64) Bucket {
    int64_t keys[kSlots];
    uint32_t rows[kSlots];
    uint32_t used;  // Slots 0..used-1 are taken.
  };
  static_assert(sizeof(Bucket) == 64);

  size_t Home(int64_t key) const { return ScaleHash(SecretHash(HashKey(key)), bucket_count_); }
  Bucket* buckets() const { return static_cast<Bucket*>(memory_.data()); }
  // The slot of `key`, or the free one where it belongs (then *found is false).
  uint32_t* Locate(int64_t key, bool& found);

  PageBuffer memory_;
  size_t bucket_count_ = 0;
  size_t size_ = 0;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_KEY_INDEX_H_
