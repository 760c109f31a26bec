// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/perfect_hash.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::engine {
namespace {

// Parts are small enough for everything that the search for pilots touches to stay in the
// first-level cache.
constexpr size_t kMaxPartShift = 10;
constexpr size_t kKeysPerBucket = 3;
// A tighter fit needs more pilots per bucket and displaces more keys.
constexpr double kLoad = 0.92;

}  // namespace

PerfectHash::Shape PerfectHash::ShapeFor(size_t keys) {
  const size_t wanted = keys / kKeysPerBucket + 1;
  Shape shape;
  while (shape.part_shift < kMaxPartShift && (size_t{1} << shape.part_shift) < wanted) {
    ++shape.part_shift;
  }
  shape.parts = ((wanted - 1) >> shape.part_shift) + 1;
  shape.part_slots =
      static_cast<size_t>(static_cast<double>(keys) / static_cast<double>(shape.parts) / kLoad) + 1;
  return shape;
}

bool PerfectHash::IsSound(const Shape& shape) {
  constexpr size_t kMost = 0xfffffffe;  // Slots are numbers of 32 bits.
  return shape.part_shift <= kMaxPartShift && shape.parts >= 1 && shape.part_slots >= 1 &&
         shape.parts <= kMost && shape.part_slots <= kMost && shape.slots() <= kMost;
}

absl::StatusOr<PerfectHash> PerfectHash::FromPilots(const Shape& shape, const uint8_t* pilots,
                                                    std::vector<Displaced> displaced) {
  PerfectHash hash;
  hash.shape_ = shape;
  hash.pilots_ = pilots;
  for (size_t i = 0; i < displaced.size(); ++i) {
    if (displaced[i].slot < shape.slots()) continue;
    return InvalidArgument("displaced key ", i, " is in slot ", displaced[i].slot, " of ",
                           shape.slots());
  }
  std::sort(displaced.begin(), displaced.end());
  hash.displaced_ = std::move(displaced);
  return hash;
}

absl::Status PerfectHashBuilder::Begin(size_t keys) {
  if (keys > PerfectHash::kMaxKeys) {
    return ResourceExhausted("more than ", PerfectHash::kMaxKeys, " rows");
  }
  hash_.shape_ = PerfectHash::ShapeFor(keys);
  taken_.assign(shape().slots(), false);
  buckets_.resize(size_t{1} << shape().part_shift);
  order_.reserve(buckets_.size());
  RETURN_IF_ERROR(hash_.own_pilots_.Resize(shape().buckets()));
  hash_.pilots_ = static_cast<const uint8_t*>(hash_.own_pilots_.data());
  return absl::OkStatus();
}

void PerfectHashBuilder::AddPart(size_t part, absl::Span<const uint64_t> hashes) {
  const size_t first_bucket = part << shape().part_shift;
  for (size_t b = 0, next = 0; b < buckets_.size(); ++b) {
    buckets_[b].begin = next;
    while (next < hashes.size() && ScaleHash(hashes[next], shape().buckets()) == first_bucket + b) {
      ++next;
    }
    buckets_[b].count = next - buckets_[b].begin;
  }
  OrderBuckets();
  for (const uint32_t b : order_) {
    PlaceBucket(hashes.subspan(buckets_[b].begin, buckets_[b].count), part, b);
  }
}

// Large buckets first, as long as there is room; empty ones not at all.
void PerfectHashBuilder::OrderBuckets() {
  const auto keys = [&](uint32_t b) { return std::min(buckets_[b].count, kMaxBucketKeys); };
  order_.clear();
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].count > 0) order_.push_back(b);
  }
  std::stable_sort(order_.begin(), order_.end(),
                   [&](uint32_t a, uint32_t b) { return keys(a) > keys(b); });
}

void PerfectHashBuilder::PlaceBucket(absl::Span<const uint64_t> hashes, size_t part, uint32_t b) {
  const size_t base = part * shape().part_slots;
  uint8_t& pilot =
      static_cast<uint8_t*>(hash_.own_pilots_.data())[(part << shape().part_shift) + b];
  if (hashes.size() <= kMaxBucketKeys) {
    for (int tried = 0; tried < PerfectHash::kDisplaced; ++tried) {
      if (!Try(hashes, base, static_cast<uint8_t>(tried))) continue;
      pilot = static_cast<uint8_t>(tried);
      return;
    }
  }
  pilot = PerfectHash::kDisplaced;
  displaced_.insert(displaced_.end(), hashes.begin(), hashes.end());
}

// Takes the slots that the pilot sends the bucket's keys to, all or none.
bool PerfectHashBuilder::Try(absl::Span<const uint64_t> hashes, size_t base, uint8_t pilot) {
  for (size_t i = 0; i < hashes.size(); ++i) {
    const size_t slot = base + PerfectHash::SlotInPart(hashes[i], pilot, shape().part_slots);
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
PerfectHash PerfectHashBuilder::Finish() {
  size_t slot = 0;
  for (const uint64_t hash : displaced_) {
    while (taken_[slot]) ++slot;  // There are more slots than keys.
    hash_.displaced_.push_back({hash, slot++});
  }
  std::sort(hash_.displaced_.begin(), hash_.displaced_.end());
  return std::move(hash_);
}

// Out of line: rare.
size_t PerfectHash::Probe::DisplacedSlot(uint64_t hash) const {
  const auto found = std::lower_bound(displaced_->begin(), displaced_->end(), Displaced{hash, 0});
  return found != displaced_->end() && found->hash == hash ? found->slot : 0;
}

absl::StatusOr<PerfectHash> PerfectHash::Build(absl::Span<const uint64_t> hashes) {
  PerfectHashBuilder builder;
  RETURN_IF_ERROR(builder.Begin(hashes.size()));
  for (size_t begin = 0, part = 0; part < builder.shape().parts; ++part) {
    size_t end = begin;
    while (end < hashes.size() && builder.PartOf(hashes[end]) == part) ++end;
    builder.AddPart(part, hashes.subspan(begin, end - begin));
    begin = end;
  }
  return builder.Finish();
}

}  // namespace ulfd::engine
