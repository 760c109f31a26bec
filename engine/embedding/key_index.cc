// An open-addressing hash index: int64 keys -> row numbers.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/key_index.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace ulfd::engine {

uint32_t* KeyIndex::Locate(int64_t key, bool& found) {
  for (size_t b = Home(key);; b = b + 1 == bucket_count_ ? 0 : b + 1) {
    Bucket& bucket = buckets()[b];
    for (uint32_t i = 0; i < bucket.used; ++i) {
      if (bucket.keys[i] == key) {
        found = true;
        return &bucket.rows[i];
      }
    }
    if (bucket.used < kSlots) {
      found = false;
      bucket.keys[bucket.used] = key;
      return &bucket.rows[bucket.used++];
    }
  }
}

absl::Status KeyIndex::Reserve(size_t keys) {
  // ceil(keys / 0.7 / kSlots), and one, so that capacity() >= keys after rounding.
  const size_t wanted = std::max(keys, size_) * 10 / (7 * kSlots) + 2;
  KeyIndex grown;
  RETURN_IF_ERROR(grown.memory_.Resize(wanted * sizeof(Bucket)));  // Zeroed: every bucket is empty.
  grown.bucket_count_ = wanted;
  grown.size_ = size_;
  for (size_t b = 0; b < bucket_count_; ++b) {
    const Bucket& bucket = buckets()[b];
    for (uint32_t i = 0; i < bucket.used; ++i) {
      bool found = false;
      *grown.Locate(bucket.keys[i], found) = bucket.rows[i];
    }
  }
  *this = std::move(grown);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> KeyIndex::Insert(int64_t key, uint32_t row) {
  if (size_ + 1 > capacity()) {
    if (const uint32_t present = Find(key); present != kNone) return present;
    RETURN_IF_ERROR(Reserve(size_ + size_ / 2 + 64));
  }
  bool found = false;
  uint32_t* slot = Locate(key, found);
  if (found) return *slot;
  *slot = row;
  ++size_;
  return row;
}

}  // namespace ulfd::engine
