// Rows of a store that are kept in memory, in a bounded number of bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_
#define ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "engine/embedding/fifo_rows.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/row_set.h"
#include "engine/embedding/row_store.h"

namespace ulfd::engine {

struct RowCacheOptions {
  int64_t max_bytes = int64_t{64} << 20;      // Of rows and what finds them.
  std::chrono::milliseconds row_lifetime{0};  // 0: no end.
  std::chrono::milliseconds missing_lifetime{10000};
};

// In the order of FifoRows.  That the table lacks an id is kept like a row.  Thread-safe; locks are
// held for some rows at a time.
class RowCache {
  struct Note {
    TimePoint expires;
    bool missing = false;
  };
  using Rows = FifoRows<int64_t, Note>;

 public:
  static constexpr size_t kEntryBytes = Rows::kEntryBytes;  // Beside its row.

  RowCache(const RowCacheOptions& options, size_t row_bytes);

  // Copies what it has of the late rows of `rows`.  Returns how many those were.
  int64_t Find(RowSet& rows, TimePoint now);
  // Keeps the row of `id`; nullptr: the table lacks it.  `hot`: as one that was asked for again.
  // After std::bad_alloc some rows are forgotten.
  void Insert(int64_t id, const char* row, TimePoint now, bool hot = false);

  // Ids whose rows have been asked for again, the most often asked first as far as that is known.
  std::vector<int64_t> HotIds() const;

  int64_t capacity() const { return capacity_ * static_cast<int64_t>(kShards); }  // Rows.
  int64_t max_bytes() const { return capacity() * static_cast<int64_t>(entry_bytes_); }
  int64_t bytes() const;  // Of what is held.

 private:
  static constexpr size_t kShards = 16;

  // A part of all ids.
  struct Shard {
    mutable Mutex mu;
    Rows rows ABSL_GUARDED_BY(mu);
  };

  static size_t ShardOf(int64_t id) { return HashKey(id) >> 60; }
  static_assert(kShards == 16);

  const RowCacheOptions options_;
  const size_t row_bytes_, entry_bytes_;
  const int64_t capacity_;  // Of a shard.
  std::array<Shard, kShards> shards_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_CACHE_H_
