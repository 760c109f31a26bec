// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/ad_cache.h"

#include <algorithm>

namespace ulfd::engine {

namespace {

// Ads by which the share of those that were found is told.
constexpr float kWindow = 4096;

}  // namespace

AdCache::AdCache(int64_t max_bytes, int64_t row_bytes, double least_hits)
    : max_bytes_(max_bytes),
      row_bytes_(row_bytes),
      capacity_(max_bytes / (EntryBytes() * static_cast<int64_t>(kShards))),
      least_hits_(least_hits) {
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    shard.rows.Reserve(capacity_, static_cast<size_t>(row_bytes));
  }
}

std::shared_ptr<AdCache> AdCache::Empty() const {
  auto empty = std::make_shared<AdCache>(max_bytes_, row_bytes_, least_hits_);
  empty->counts_ = counts_;
  return empty;
}

bool AdCache::Wants(int64_t ads) {
  if (share_.load(std::memory_order_relaxed) >= least_hits_ ||
      inserted_.load(std::memory_order_relaxed) < capacity_ * static_cast<int64_t>(kShards) ||
      pieces_.fetch_add(1, std::memory_order_relaxed) % kSample == 0) {
    return true;
  }
  counts_->passed.fetch_add(ads, std::memory_order_relaxed);
  return false;
}

AdCache::ByShard AdCache::Sort(absl::Span<const KeptKey> keys, Work& work) {
  std::array<uint32_t, kShards + 1> next{};
  for (const KeptKey& key : keys) ++next[ShardOf(key) + 1];
  for (size_t s = 0; s < kShards; ++s) next[s + 1] += next[s];
  work.order.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    work.order[next[ShardOf(keys[i])]++] = static_cast<uint32_t>(i);
  }
  ByShard sorted{.order = work.order};
  std::copy_n(next.begin(), kShards, sorted.ends.begin());
  return sorted;
}

template <typename Function>
void AdCache::Visit(const ByShard& keys, Function visit) {
  uint32_t o = 0;
  for (size_t s = 0; s < kShards; ++s) {
    if (o == keys.ends[s]) continue;
    Shard& shard = shards_[s];
    MutexLock lock(shard.mu);
    for (; o < keys.ends[s]; ++o) visit(shard.rows, keys.order[o]);
  }
}

void AdCache::Find(absl::Span<const KeptKey> keys, Work& work,
                   absl::FunctionRef<void(size_t, const char*)> hit) {
  const ByShard sorted = Sort(keys, work);
  std::vector<uint32_t>& entries = work.entries;
  entries.resize(keys.size());
  // Three times over all keys, so that what is far away comes while others are looked at.  Between
  // the second time and the third an entry may have become another key's.
  Visit(sorted, [&](Rows& rows, uint32_t i) { rows.PrefetchKey(keys[i]); });
  Visit(sorted, [&](Rows& rows, uint32_t i) {
    entries[i] = rows.FindLikely(keys[i]);
    if (entries[i] != Rows::kNone) rows.PrefetchRow(entries[i]);
  });
  int64_t found = 0;
  Visit(sorted, [&](Rows& rows, uint32_t i) {
    if (!rows.IsOf(entries[i], keys[i])) return;
    rows.Hit(entries[i]);
    hit(i, rows.row(entries[i]));
    ++found;
  });
  const auto ads = static_cast<int64_t>(keys.size());
  counts_->hits.fetch_add(found, std::memory_order_relaxed);
  counts_->misses.fetch_add(ads - found, std::memory_order_relaxed);
  // Of several threads at once one may be forgotten.
  const float before = share_.load(std::memory_order_relaxed);
  const float weight = std::min(1.0f, static_cast<float>(ads) / kWindow);
  const float now = static_cast<float>(found) / static_cast<float>(std::max<int64_t>(ads, 1));
  share_.store(before + weight * (now - before), std::memory_order_relaxed);
}

void AdCache::Insert(absl::Span<const KeptKey> keys, Work& work,
                     absl::FunctionRef<void(size_t, char*)> write) {
  if (capacity_ == 0) return;
  Visit(Sort(keys, work), [&](Rows& rows, uint32_t i) {
    if (rows.Find(keys[i]) == Rows::kNone) write(i, rows.row(rows.Add(keys[i])));
  });
  inserted_.fetch_add(static_cast<int64_t>(keys.size()), std::memory_order_relaxed);
}

AdCacheStats AdCache::stats() const {
  AdCacheStats stats{.hits = counts_->hits.load(std::memory_order_relaxed),
                     .misses = counts_->misses.load(std::memory_order_relaxed),
                     .passed = counts_->passed.load(std::memory_order_relaxed)};
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    stats.bytes += shard.rows.size() * EntryBytes();
  }
  return stats;
}

}  // namespace ulfd::engine
