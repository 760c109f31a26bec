// A hash function without collisions for a fixed set of keys.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/perfect_hash.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// Parts are small enough for everything that the search for pilots touches to stay in the
// first-level cache.
constexpr int kMaxPartShift = 10;
constexpr size_t kKeysPerBucket = 3;
// A tighter fit needs more pilots per bucket and leaves more keys to the KeyIndex.
constexpr double kLoad = 0.92;
constexpr size_t kMaxBucketKeys = 32;  // Larger ones (a set made against us) are displaced.

}  // namespace

class PerfectHashBuilder {
 public:
  PerfectHashBuilder(absl::Span<const uint64_t> hashes, PerfectHash& hash)
      : hashes_(hashes), hash_(hash) {}

  absl::Status Build() {
    RETURN_IF_ERROR(Lay());
    const size_t parts = hash_.bucket_count_ >> hash_.part_shift_;
    for (size_t part = 0, next = 0; part < parts; ++part) {
      next = ReadPart(part, next);
      OrderBuckets();
      for (const uint32_t b : order_) PlaceBucket(part, b);
    }
    return PlaceDisplaced();
  }

 private:
  struct Bucket {
    size_t begin = 0, count = 0;  // In hashes_.
  };

  absl::Status Lay() {
    const size_t keys = hashes_.size();
    if (keys > PerfectHash::kMaxKeys) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", PerfectHash::kMaxKeys, " rows"));
    }
    const size_t wanted = keys / kKeysPerBucket + 1;
    int shift = 0;
    while (shift < kMaxPartShift && (size_t{1} << shift) < wanted) ++shift;
    const size_t parts = ((wanted - 1) >> shift) + 1;
    hash_.part_shift_ = shift;
    hash_.bucket_count_ = parts << shift;
    hash_.part_slots_ =
        static_cast<size_t>(static_cast<double>(keys) / static_cast<double>(parts) / kLoad) + 1;
    hash_.slots_ = parts * hash_.part_slots_;
    taken_.assign(hash_.slots_, false);
    buckets_.resize(size_t{1} << shift);
    order_.reserve(buckets_.size());
    return hash_.pilots_.Resize(hash_.bucket_count_);
  }

  // Finds the keys of every bucket of the part; hashes_[next] is the first.  Returns where the next
  // part begins.
  size_t ReadPart(size_t part, size_t next) {
    const size_t first_bucket = part << hash_.part_shift_;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      buckets_[b].begin = next;
      while (next < hashes_.size() &&
             ScaleHash(hashes_[next], hash_.bucket_count_) == first_bucket + b) {
        ++next;
      }
      buckets_[b].count = next - buckets_[b].begin;
    }
    return next;
  }

  // Large buckets first, as long as there is room; empty ones not at all.
  void OrderBuckets() {
    std::array<uint32_t, kMaxBucketKeys + 2> begin{};  // Of the buckets of each size, descending.
    const auto rank = [](size_t count) { return kMaxBucketKeys - std::min(count, kMaxBucketKeys); };
    for (const Bucket& bucket : buckets_) ++begin[rank(bucket.count) + 1];
    for (size_t r = 1; r < begin.size(); ++r) begin[r] += begin[r - 1];
    order_.resize(begin[kMaxBucketKeys]);  // Rank kMaxBucketKeys is no keys.
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].count == 0) continue;
      order_[begin[rank(buckets_[b].count)]++] = static_cast<uint32_t>(b);
    }
  }

  void PlaceBucket(size_t part, uint32_t b) {
    const Bucket& bucket = buckets_[b];
    const size_t base = part * hash_.part_slots_;
    uint8_t& pilot = hash_.pilots()[(part << hash_.part_shift_) + b];
    if (bucket.count <= kMaxBucketKeys) {
      for (int tried = 0; tried < PerfectHash::kDisplaced; ++tried) {
        if (!Try(bucket, base, static_cast<uint8_t>(tried))) continue;
        pilot = static_cast<uint8_t>(tried);
        return;
      }
    }
    pilot = PerfectHash::kDisplaced;
    for (size_t i = 0; i < bucket.count; ++i) displaced_.push_back(hashes_[bucket.begin + i]);
  }

  // Takes the slots that the pilot sends the bucket's keys to, all or none.
  bool Try(const Bucket& bucket, size_t base, uint8_t pilot) {
    for (size_t i = 0; i < bucket.count; ++i) {
      const size_t slot =
          base + PerfectHash::SlotInPart(hashes_[bucket.begin + i], pilot, hash_.part_slots_);
      if (taken_[slot]) {
        for (size_t j = 0; j < i; ++j) taken_[slots_[j]] = false;
        return false;
      }
      taken_[slot] = true;
      slots_[i] = slot;
    }
    return true;
  }

  // Gives the keys that are left the slots that are left.
  absl::Status PlaceDisplaced() {
    if (displaced_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(hash_.displaced_.Reserve(displaced_.size()));
    size_t slot = 0;
    size_t placed = 0;
    for (const uint64_t hash : displaced_) {
      // Ids that collide in the index, too, take a step for each one before them.
      if (placed++ % 256 == 0) RETURN_IF_ERROR(LoadScope::Check());
      while (taken_[slot]) ++slot;  // There are more slots than keys.
      taken_[slot] = true;
      absl::StatusOr<uint32_t> inserted =
          hash_.displaced_.Insert(static_cast<int64_t>(hash), static_cast<uint32_t>(slot));
      if (!inserted.ok()) return inserted.status();
    }
    return absl::OkStatus();
  }

  const absl::Span<const uint64_t> hashes_;
  PerfectHash& hash_;
  std::vector<bool> taken_;      // Slots.
  std::vector<Bucket> buckets_;  // Of one part.
  std::vector<uint32_t> order_;  // Of buckets_.
  std::array<size_t, kMaxBucketKeys> slots_{};
  std::vector<uint64_t> displaced_;
};

// Out of line: rare.
size_t PerfectHash::Probe::DisplacedSlot(uint64_t hash) const {
  const uint32_t slot = displaced_->Find(static_cast<int64_t>(hash));
  return slot == KeyIndex::kNone ? 0 : slot;
}

absl::StatusOr<PerfectHash> PerfectHash::Build(absl::Span<const uint64_t> hashes) {
  PerfectHash hash;
  RETURN_IF_ERROR(PerfectHashBuilder(hashes, hash).Build());
  return hash;
}

}  // namespace ulfd::engine
