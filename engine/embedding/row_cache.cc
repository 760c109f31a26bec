// Rows of a store that are kept in memory.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/row_cache.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace ulfd::engine {
namespace {

// The small queue's part of the entries, and that of the ids that have left it.
constexpr int64_t kSmallPart = 10;

}  // namespace

RowCache::RowCache(const RowCacheOptions& options, size_t row_bytes)
    : options_(options),
      row_bytes_(row_bytes),
      entry_bytes_(row_bytes + kEntryBytes),
      capacity_(options.max_bytes / static_cast<int64_t>(entry_bytes_ * kShards)) {
  for (Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    // Pages come as they are written.
    const auto bytes = static_cast<size_t>(capacity_) * row_bytes_;
    shard.rows = std::make_unique_for_overwrite<char[]>(bytes);
    const auto rows = static_cast<size_t>(capacity_);
    shard.entries.reserve(rows);
    // An eighth more, or what has been erased would make them grow.
    shard.by_id.reserve(rows + rows / 8 + 1);
    shard.left_number.reserve(rows + rows / 8 + 2);
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
      const auto it = shard.by_id.find(rows.ids()[i]);
      if (it == shard.by_id.end()) continue;
      Entry& entry = shard.entries[it->second];
      if (entry.expires <= now) continue;
      entry.hits = std::min<uint8_t>(entry.hits + 1, kMaxHits);
      ++found;
      rows.set_state(i, entry.missing ? RowState::kMissing : RowState::kPresent);
      if (entry.missing) continue;
      std::memcpy(rows.row(i), shard.rows.get() + it->second * row_bytes_, row_bytes_);
    }
  }
  return found;
}

void RowCache::Set(Shard& shard, uint32_t entry, const char* row, TimePoint now) {
  Entry& to = shard.entries[entry];
  to.missing = row == nullptr;
  const auto lifetime = to.missing ? options_.missing_lifetime : options_.row_lifetime;
  to.expires = lifetime.count() == 0 ? TimePoint::max() : now + lifetime;
  if (!to.missing) std::memcpy(shard.rows.get() + entry * row_bytes_, row, row_bytes_);
}

void RowCache::Insert(int64_t id, const char* row, TimePoint now) {
  if (capacity_ == 0) return;
  Shard& shard = shards_[ShardOf(id)];
  MutexLock lock(shard.mu);
  if (const auto it = shard.by_id.find(id); it != shard.by_id.end()) {
    return Set(shard, it->second, row, now);
  }
  try {
    Add(shard, id, row, now);
  } catch (const std::bad_alloc&) {
    // A queue may lack an entry now.  Room in the tables stays (clear would give it back).
    shard.by_id.erase(shard.by_id.begin(), shard.by_id.end());
    shard.left_number.erase(shard.left_number.begin(), shard.left_number.end());
    shard.entries.clear();
    shard.small.clear();
    shard.main.clear();
    shard.left.clear();
    throw;
  }
}

void RowCache::Add(Shard& shard, int64_t id, const char* row, TimePoint now) {
  uint32_t entry = 0;
  if (static_cast<int64_t>(shard.entries.size()) < capacity_) {
    entry = static_cast<uint32_t>(shard.entries.size());
    shard.entries.emplace_back();
  } else {
    entry = Evict(shard);
  }
  shard.entries[entry] = {.id = id};
  Set(shard, entry, row, now);
  (TakeLeft(shard, id) ? shard.main : shard.small).push_back(entry);
  shard.by_id.emplace(id, entry);
}

uint32_t RowCache::Forget(Shard& shard, uint32_t entry) {
  shard.by_id.erase(shard.entries[entry].id);
  return entry;
}

uint32_t RowCache::Evict(Shard& shard) {
  for (;;) {
    const auto small = static_cast<int64_t>(shard.small.size());
    const bool from_small = shard.main.empty() || small * kSmallPart >= capacity_;
    std::deque<uint32_t>& queue = from_small && small > 0 ? shard.small : shard.main;
    const uint32_t entry = queue.front();
    queue.pop_front();
    Entry& candidate = shard.entries[entry];
    if (&queue == &shard.small) {
      if (candidate.hits > 1) {
        candidate.hits = 0;
        shard.main.push_back(entry);
        continue;
      }
      NoteLeft(shard, candidate.id);
      return Forget(shard, entry);
    }
    if (candidate.hits == 0) return Forget(shard, entry);
    --candidate.hits;
    shard.main.push_back(entry);
  }
}

void RowCache::NoteLeft(Shard& shard, int64_t id) {
  const uint64_t number = shard.next_number++;
  shard.left.emplace_back(id, number);
  shard.left_number[id] = number;
  if (static_cast<int64_t>(shard.left.size()) <= capacity_) return;
  const auto [oldest, its_number] = shard.left.front();
  shard.left.pop_front();
  const auto it = shard.left_number.find(oldest);
  if (it != shard.left_number.end() && it->second == its_number) shard.left_number.erase(it);
}

bool RowCache::TakeLeft(Shard& shard, int64_t id) { return shard.left_number.erase(id) > 0; }

std::vector<int64_t> RowCache::HotIds() const {
  std::array<std::vector<int64_t>, kMaxHits + 1> by_hits;
  for (const Shard& shard : shards_) {
    MutexLock lock(shard.mu);
    const auto add = [&](uint32_t i, bool hot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu) {
      const Entry& entry = shard.entries[i];
      if (!entry.missing && (hot || entry.hits > 0)) by_hits[entry.hits].push_back(entry.id);
    };
    for (const uint32_t i : shard.main) add(i, true);
    for (const uint32_t i : shard.small) add(i, false);
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
    entries += static_cast<int64_t>(shard.entries.size());
  }
  return entries * static_cast<int64_t>(entry_bytes_);
}

}  // namespace ulfd::engine
