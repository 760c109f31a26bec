// A hash function without collisions for a fixed set of keys.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_
#define ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"

namespace ulfd::engine {

// Hash and displace: keys fall into buckets of three on average, and every bucket has a pilot, the
// one byte that sends its keys to slots which no other key has.  1.09 slots and 0.35 bytes per key:
// the pilots of 40 million keys are 13 MB, so that a lookup costs one cache miss in a cache that is
// shared with the rest and then goes straight to the slot.  Keys of a bucket for which no byte
// fits (one in a thousand) stand in a list.  Keys are given by their HashKey.
// Immutable after Build; any thread may read.
class PerfectHash {
 public:
  PerfectHash() = default;
  // `hashes`: at least one, ascending, no two equal.  RESOURCE_EXHAUSTED if there is no memory or
  // there are more than kMaxKeys.
  static absl::StatusOr<PerfectHash> Build(absl::Span<const uint64_t> hashes);

  // What tells where slots are, apart from pilots and displaced keys.
  struct Shape {
    size_t part_shift = 0;  // Of 2^part_shift buckets is a part,
    size_t part_slots = 0;  // which has these slots of its own.
    size_t parts = 0;
    size_t buckets() const { return parts << part_shift; }
    size_t slots() const { return parts * part_slots; }
  };
  // What a PerfectHash of that many keys is like.  REQUIRES: 1 <= keys <= kMaxKeys.
  static Shape ShapeFor(size_t keys);
  // Whether every Slot is a number below slots(), whatever the pilots: for shapes that are read.
  static bool IsSound(const Shape& shape);
  // A key that no pilot places, and its slot.
  struct Displaced {
    uint64_t hash = 0, slot = 0;
    auto operator<=>(const Displaced&) const =
        default;  // NOLINT(modernize-use-nullptr): no pointer.
  };
  // One that was built before.  `pilots` are shape.buckets() bytes and outlive it.
  // INVALID_ARGUMENT for a slot that there is not.  REQUIRES: IsSound(shape).
  static absl::StatusOr<PerfectHash> FromPilots(const Shape& shape, const uint8_t* pilots,
                                                std::vector<Displaced> displaced);

  // What lookups need, by value, so that loops may keep it in registers.  Valid as long as the
  // PerfectHash, which must not be moved meanwhile.
  class Probe {
   public:
    // The slot, below slots(), of a key: its own if Build was given it, and any if not.
    size_t Slot(uint64_t hash) const { return SlotOf(hash, Pilot(hash)); }
    // Slot in two steps: where the pilot is, and what follows from it.
    const uint8_t* Pilot(uint64_t hash) const { return pilots_ + ScaleHash(hash, bucket_count_); }
    size_t SlotOf(uint64_t hash, const uint8_t* pilot) const {
      if (__builtin_expect(*pilot == kDisplaced, 0)) return DisplacedSlot(hash);
      return (static_cast<size_t>(pilot - pilots_) >> part_shift_) * part_slots_ +
             SlotInPart(hash, *pilot, part_slots_);
    }

   private:
    friend class PerfectHash;
    size_t DisplacedSlot(uint64_t hash) const;
    const uint8_t* pilots_ = nullptr;
    size_t bucket_count_ = 0, part_slots_ = 0;
    int part_shift_ = 0;
    const std::vector<Displaced>* displaced_ = nullptr;
  };
  Probe probe() const {
    Probe probe;
    probe.pilots_ = pilots_;
    probe.bucket_count_ = shape_.buckets();
    probe.part_slots_ = shape_.part_slots;
    probe.part_shift_ = static_cast<int>(shape_.part_shift);
    probe.displaced_ = &displaced_;
    return probe;
  }
  size_t Slot(uint64_t hash) const { return probe().Slot(hash); }

  const Shape& shape() const { return shape_; }
  size_t slots() const { return shape_.slots(); }
  // shape().buckets() of them.
  const uint8_t* pilots() const { return pilots_; }
  size_t bytes() const { return own_pilots_.bytes() + displaced_.capacity() * sizeof(Displaced); }
  // By hash, ascending.
  const std::vector<Displaced>& displaced() const { return displaced_; }

  static constexpr size_t kMaxKeys = 3'800'000'000;  // Slots are numbers of 32 bits.

 private:
  friend class PerfectHashBuilder;
  static constexpr uint8_t kDisplaced = 255;

  static size_t SlotInPart(uint64_t hash, uint8_t pilot, size_t part_slots) {
    const uint64_t mixed = (hash ^ (pilot * 0x9e3779b97f4a7c15ULL)) * 0xd6e8feb86659fd93ULL;
    return ((mixed >> 32) * part_slots) >> 32;
  }

  Shape shape_;
  const uint8_t* pilots_ = nullptr;  // Of every bucket.
  PageBuffer own_pilots_;            // Empty where others hold them.
  std::vector<Displaced> displaced_;
};

// Makes a PerfectHash part by part, for keys that are too many to hold: memory is a bit for each
// slot, the pilots, and the displaced keys.
class PerfectHashBuilder {
 public:
  // For `keys` keys.  RESOURCE_EXHAUSTED.
  absl::Status Begin(size_t keys);
  // The part of a key.  All keys of a part are given together, parts in ascending order.
  size_t PartOf(uint64_t hash) const {
    return ScaleHash(hash, hash_.shape_.buckets()) >> hash_.shape_.part_shift;
  }
  // The keys of one part, ascending, no two equal.  From then on IsDisplaced and Slot know them.
  void AddPart(size_t part, absl::Span<const uint64_t> hashes);
  // Whether the key has no slot before Finish.
  bool IsDisplaced(uint64_t hash) const {
    return hash_.pilots_[ScaleHash(hash, hash_.shape_.buckets())] == PerfectHash::kDisplaced;
  }
  // REQUIRES: not displaced.
  size_t Slot(uint64_t hash) const { return hash_.Slot(hash); }
  const PerfectHash::Shape& shape() const { return hash_.shape_; }
  PerfectHash Finish();

 private:
  struct Bucket {
    size_t begin = 0, count = 0;  // In the hashes of the part.
  };
  // Larger ones (a set made against us) are displaced.
  static constexpr size_t kMaxBucketKeys = 32;

  void OrderBuckets();
  void PlaceBucket(absl::Span<const uint64_t> hashes, size_t part, uint32_t b);
  bool Try(absl::Span<const uint64_t> hashes, size_t base, uint8_t pilot);

  PerfectHash hash_;
  std::vector<bool> taken_;      // Slots.
  std::vector<Bucket> buckets_;  // Of one part.
  std::vector<uint32_t> order_;  // Of buckets_.
  std::array<size_t, kMaxBucketKeys> slots_{};
  std::vector<uint64_t> displaced_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_PERFECT_HASH_H_
