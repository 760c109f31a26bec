// Rows of a store that are kept in memory, in a bounded number of bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_
#define ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/hash_map.h"
#include "base/mutex.h"
#include "engine/embedding/row_set.h"
#include "engine/embedding/row_store.h"

namespace ulfd::engine {

struct RowCacheOptions {
  int64_t max_bytes = int64_t{64} << 20;      // Of rows and what finds them.
  std::chrono::milliseconds row_lifetime{0};  // 0: no end.
  std::chrono::milliseconds missing_lifetime{10000};
};

// S3-FIFO (Yang et al., SOSP 2023): what is new waits in a small queue, and only what is asked for
// again there, or soon after it has left, comes into the main one.  A hit moves nothing.  That the
// table lacks an id is kept like a row.  Thread-safe; locks are held for some rows at a time.
class RowCache {
 public:
  RowCache(const RowCacheOptions& options, size_t row_bytes);

  // Copies what it has of the late rows of `rows`.  Returns how many those were.
  int64_t Find(RowSet& rows, TimePoint now);
  // Keeps the row of `id`; nullptr: the table lacks it.  After std::bad_alloc some rows are
  // forgotten.
  void Insert(int64_t id, const char* row, TimePoint now);

  // Ids whose rows have been asked for again, the most often asked first as far as that is known.
  std::vector<int64_t> HotIds() const;

  int64_t capacity() const { return capacity_ * static_cast<int64_t>(kShards); }  // Rows.
  int64_t max_bytes() const { return capacity() * static_cast<int64_t>(entry_bytes_); }
  int64_t bytes() const;  // Of what is held.

 private:
  static constexpr size_t kShards = 16;
  static constexpr uint8_t kMaxHits = 3;
  // Of an entry beside its row: itself, places in queues and maps, and those of who has left.
  static constexpr size_t kEntryBytes = 128;

  struct Entry {
    int64_t id = 0;
    TimePoint expires;
    uint8_t hits = 0;  // Since it came, or was looked at by the main queue; at most kMaxHits.
    bool missing = false;
  };

  // A part of all ids, with queues of its own.
  struct Shard {
    mutable Mutex mu;
    // -> entries.  Has room for all from the start: absl's tables do not outlive a want of memory.
    HashMap<int64_t, uint32_t> by_id ABSL_GUARDED_BY(mu);
    std::vector<Entry> entries ABSL_GUARDED_BY(mu);
    std::unique_ptr<char[]> rows ABSL_GUARDED_BY(mu);  // As many as entries may come to be.
    std::deque<uint32_t> small ABSL_GUARDED_BY(mu), main ABSL_GUARDED_BY(mu);  // Oldest first.
    // Ids that left the small queue, the oldest first, each with its number; what came back
    // meanwhile has another number, or none.
    std::deque<std::pair<int64_t, uint64_t>> left ABSL_GUARDED_BY(mu);
    HashMap<int64_t, uint64_t> left_number ABSL_GUARDED_BY(mu);  // As by_id.
    uint64_t next_number ABSL_GUARDED_BY(mu) = 0;
  };

  static size_t ShardOf(int64_t id) { return HashKey(id) >> 60; }
  static_assert(kShards == 16);

  void Add(Shard& shard, int64_t id, const char* row, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  // Frees an entry and returns it.
  uint32_t Evict(Shard& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  uint32_t Forget(Shard& shard, uint32_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  void NoteLeft(Shard& shard, int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  bool TakeLeft(Shard& shard, int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);
  void Set(Shard& shard, uint32_t entry, const char* row, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mu);

  const RowCacheOptions options_;
  const size_t row_bytes_, entry_bytes_;
  const int64_t capacity_;  // Of a shard.
  std::array<Shard, kShards> shards_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_
