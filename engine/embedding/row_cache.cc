// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_cache.h"

#include <cstring>

namespace ulfd::engine {
RowCache::RowCache(const RowCacheOptions& options, size_t row_bytes)
    : options_(options),
      row_bytes_(row_bytes),
      entry_bytes_(row_bytes + kEntryBytes),
      capacity_(options.max_bytes / static_cast<int64_t>(entry_bytes_ * kShards)) {
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    shard.rows.Reserve(capacity_, row_bytes_);
  }
}

int64_t RowCache::Find(RowSet& rows, TimePoint now) {
  // By shard, so that each lock is taken once.
  std::array<uint32_t, kShards + 1> begin{};
  for (const int64_t id : rows.ids()) ++begin[ShardOf(id) + 1];
  for (size_t s = 0; s < kShards; ++s) begin[s + 1] += begin[s];
  std::vector<uint32_t> order(rows.size());
  std::array<uint32_t, kShards + 1> next = begin;
  for (size_t i = 0; i < rows.size(); ++i) {
    order[next[ShardOf(rows.ids()[i])]++] = static_cast<uint32_t>(i);
  }
  int64_t found = 0;
  for (size_t s = 0; s < kShards; ++s) {
    if (begin[s] == begin[s + 1]) continue;
    Shard& shard = shards_[s];
    MutexLock lock(shard.mu);
    for (uint32_t o = begin[s]; o < begin[s + 1]; ++o) {
      const uint32_t i = order[o];
      if (rows.state(i) != RowState::kLate) continue;
      const uint32_t entry = shard.rows.Find(rows.ids()[i]);
      if (entry == Rows::kNone) continue;
      const Note& note = shard.rows.note(entry);
      if (note.expires <= now) continue;
      shard.rows.Hit(entry);
      ++found;
      rows.set_state(i, note.missing ? RowState::kMissing : RowState::kPresent);
      if (!note.missing) std::memcpy(rows.row(i), shard.rows.row(entry), row_bytes_);
    }
  }
  return found;
}

void RowCache::Insert(int64_t id, const char* row, TimePoint now, bool hot) {
  if (capacity_ == 0) return;
  Shard& shard = shards_[ShardOf(id)];
  MutexLock lock(shard.mu);
  uint32_t entry = shard.rows.Find(id);
  if (entry == Rows::kNone) entry = shard.rows.Add(id);
  Note& note = shard.rows.note(entry);
  note.missing = row == nullptr;
  const auto lifetime = note.missing ? options_.missing_lifetime : options_.row_lifetime;
  note.expires = lifetime.count() == 0 ? TimePoint::max() : now + lifetime;
  if (!note.missing) std::memcpy(shard.rows.row(entry), row, row_bytes_);
  if (hot) shard.rows.Hit(entry);
}

std::vector<int64_t> RowCache::HotIds() const {
  std::array<std::vector<int64_t>, Rows::kMaxHits + 1> by_hits;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    const Rows& rows = shard.rows;
    const auto add = [&](uint32_t i, bool hot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu) {
      if (rows.note(i).missing || (!hot && rows.hits(i) == 0)) return;
      by_hits[rows.hits(i)].push_back(rows.key(i));
    };
    for (const uint32_t i : rows.main()) add(i, true);
    for (const uint32_t i : rows.small()) add(i, false);
  }
  std::vector<int64_t> ids;
  for (size_t hits = by_hits.size(); hits-- > 0;) {
    ids.insert(ids.end(), by_hits[hits].begin(), by_hits[hits].end());
  }
  return ids;
}

int64_t RowCache::bytes() const {
  int64_t entries = 0;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    entries += shard.rows.size();
  }
  return entries * static_cast<int64_t>(entry_bytes_);
}

}  // namespace ulfd::engine
