// A table's rows in a store, and those of them that are kept in memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_TIER_H_
#define ULFD_ENGINE_EMBEDDING_ROW_TIER_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/row_cache.h"
#include "engine/embedding/row_set.h"
#include "engine/embedding/row_store.h"

namespace ulfd::engine {

struct RowTierOptions {
  RowCacheOptions cache;
  std::chrono::milliseconds fetch_timeout{50};
};

// Counted since the tier was opened.
struct RowTierStats {
  // Upper bounds of fetch_counts but the last, in seconds.
  static constexpr std::array<double, 10> kFetchBounds = {0.0001, 0.0003, 0.001, 0.003, 0.01,
                                                          0.03,   0.1,    0.3,   1,     3};
  int64_t hits = 0, misses = 0;  // Ids that were in memory, or not, when a request came.
  int64_t hedges = 0;            // Of the store, all its tables together.
  int64_t failures = 0;          // Fetches that an error left without rows.
  int64_t cached_bytes = 0;
  std::array<int64_t, kFetchBounds.size() + 1> fetch_counts{};
  double fetch_seconds = 0;
};

// Thread-safe.
class RowTier {
 public:
  RowTier(std::unique_ptr<const RowStore> store, const RowTierOptions& options);

  const StoredTableInfo& table() const { return store_->table(); }
  std::chrono::milliseconds fetch_timeout() const { return options_.fetch_timeout; }
  // Memory that it may come to hold.
  int64_t bytes() const { return cache_.max_bytes() + store_->bytes(); }

  // Copies what is in memory of the late ones into `rows`, reserved before.  Never blocks for long.
  void Find(RowSet& rows);
  // Brings what is late of all the sets, tables of one backend together; a row that another thread
  // is fetching is waited for.  Blocks, but not for long beyond `deadline`; what is late then stays
  // late.  The first error met, naming the table; there may be rows nevertheless.
  struct Fetch {
    RowTier* tier = nullptr;
    RowSet* rows = nullptr;
    const std::string* name = nullptr;  // Of the table, for errors.
  };
  static absl::Status FetchAll(absl::Span<const Fetch> fetches, TimePoint deadline);

  // Brings the rows of all these ids, past what is in memory.  For loading.  UNAVAILABLE for some
  // that did not come in time; errors of the store.
  absl::StatusOr<RowSet> Read(absl::Span<const int64_t> ids, TimePoint deadline) const;

  // Ids whose rows are in memory and have been asked for again, the hottest first.
  std::vector<int64_t> HotIds() const { return cache_.HotIds(); }
  // Brings rows of these ids into memory, the first ones first, as many as it has room for, until
  // the deadline.  Errors of the store and of LoadScope::Check.
  absl::Status ReadAhead(absl::Span<const int64_t> ids, TimePoint deadline);

  RowTierStats stats() const;

 private:
  // Makes late rows that nobody fetches the caller's to fetch.  Whether others fetch some.
  bool TakeClaim(RowSet& rows, std::vector<size_t>& wanted);
  // Ends a claim: what came goes into the cache, and who waits is told.
  void Settle(const RowRead& read);
  // Returns when nobody fetches any of the late rows, or at the deadline, with those that came.
  void AwaitOthers(RowSet& rows, TimePoint deadline);
  static absl::Status FetchRound(absl::Span<const Fetch> fetches, TimePoint deadline, bool* others);
  void CountFetch(std::chrono::nanoseconds took);

  const RowTierOptions options_;
  const std::unique_ptr<const RowStore> store_;
  RowCache cache_;
  Mutex mu_;
  CondVar settled_;
  // Ids that somebody fetches.  Not absl's: an insertion without memory must leave it as it was.
  std::unordered_set<int64_t, KeyHash> under_way_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> hits_{0}, misses_{0}, failures_{0}, fetch_ns_{0};
  std::array<std::atomic<int64_t>, RowTierStats::kFetchBounds.size() + 1> fetch_counts_{};
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_TIER_H_
