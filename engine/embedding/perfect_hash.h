// A hash function without collisions for a fixed set of keys.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_
#define ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/key_index.h"
#include "engine/embedding/page_buffer.h"

namespace ulfd::engine {

// Hash and displace: keys fall into buckets of three on average, and every bucket has a pilot, the
// one byte that sends its keys to slots which no other key has.  1.09 slots and 0.35 bytes per key:
// the pilots of 40 million keys are 13 MB, so that a lookup costs one cache miss in a cache that is
// shared with the rest and then goes straight to the slot.  Keys of a bucket for which no byte
// fits (one in a thousand) are found through a KeyIndex.  Keys are given by their HashKey.
// Immutable after Build; any thread may read.
class PerfectHash {
 public:
  PerfectHash() = default;
  // `hashes`: at least one, ascending, no two equal.  RESOURCE_EXHAUSTED if there is no memory or
  // there are more than kMaxKeys.
  static absl::StatusOr<PerfectHash> Build(absl::Span<const uint64_t> hashes);

  // What lookups need, by value, so that loops may keep it in registers.  Valid as long as the
  // PerfectHash, which must not be moved meanwhile.
  class Probe {
   public:
    // The slot, below slots(), of a key: its own if Build was given it, and any if not.
    size_t Slot(uint64_t hash) const {
      const size_t bucket = ScaleHash(hash, bucket_count_);
      const uint8_t pilot = pilots_[bucket];
      if (__builtin_expect(pilot == kDisplaced, 0)) return DisplacedSlot(hash);
      return (bucket >> part_shift_) * part_slots_ + SlotInPart(hash, pilot, part_slots_);
    }
    // Hints the pilot that Slot reads.
    void Prefetch(uint64_t hash) const {
      __builtin_prefetch(pilots_ + ScaleHash(hash, bucket_count_));
    }

   private:
    friend class PerfectHash;
    size_t DisplacedSlot(uint64_t hash) const;
    const uint8_t* pilots_ = nullptr;
    size_t bucket_count_ = 0, part_slots_ = 0;
    int part_shift_ = 0;
    const KeyIndex* displaced_ = nullptr;
  };
  Probe probe() const {
    Probe probe;
    probe.pilots_ = pilots();
    probe.bucket_count_ = bucket_count_;
    probe.part_slots_ = part_slots_;
    probe.part_shift_ = part_shift_;
    probe.displaced_ = &displaced_;
    return probe;
  }
  size_t Slot(uint64_t hash) const { return probe().Slot(hash); }

  size_t slots() const { return slots_; }
  size_t bytes() const { return pilots_.bytes() + displaced_.bytes(); }
  // Keys that are found through the KeyIndex.
  size_t displaced() const { return displaced_.size(); }

  static constexpr size_t kMaxKeys = 3'800'000'000;  // Slots are numbers of 32 bits.

 private:
  friend class PerfectHashBuilder;
  static constexpr uint8_t kDisplaced = 255;

  static size_t SlotInPart(uint64_t hash, uint8_t pilot, size_t part_slots) {
    const uint64_t mixed = (hash ^ (pilot * 0x9e3779b97f4a7c15ULL)) * 0xd6e8feb86659fd93ULL;
    return ((mixed >> 32) * part_slots) >> 32;
  }
  uint8_t* pilots() const { return static_cast<uint8_t*>(pilots_.data()); }

  size_t bucket_count_ = 0;
  size_t part_slots_ = 0;  // A part is 2^part_shift_ buckets and these slots.
  int part_shift_ = 0;
  size_t slots_ = 0;
  PageBuffer pilots_;   // Of every bucket.
  KeyIndex displaced_;  // Hash -> slot.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_
