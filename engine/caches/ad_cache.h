// What was computed of ads from their own features, for requests that bring the same ads again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_CACHES_AD_CACHE_H_
#define ULFD_ENGINE_CACHES_AD_CACHE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "engine/caches/kept_key.h"
#include "engine/embedding/fifo_rows.h"

namespace ulfd::engine {

// What became of ads so far.
struct AdCacheStats {
  int64_t hits = 0, misses = 0;  // Looked up.
  int64_t passed = 0;            // Not looked up, because few were found.
  int64_t bytes = 0;             // Held now.
};

// Rows of one size in the order of FifoRows.  Of one model.  Thread-safe; locks are held for some
// rows at a time.
class AdCache {
 public:
  // least_hits: the share of ads from which on looking them up pays.
  AdCache(int64_t max_bytes, int64_t row_bytes, double least_hits);
  // Beside its row.
  static constexpr size_t kEntryBytes = FifoRows<KeptKey, char, KeptKeyHash>::kEntryBytes;

  // One like this that holds nothing, and goes on counting where this is.
  std::shared_ptr<AdCache> Empty() const;

  // Whether `ads` ads are to be looked up: once the cache is full, only some are while few are
  // found.
  bool Wants(int64_t ads);
  // Memory to work with.
  struct Work {
    std::vector<uint32_t> order, entries;
  };
  // Calls `hit` with the position of each key that is there, and its row, under a lock.
  void Find(absl::Span<const KeptKey> keys, Work& work,
            absl::FunctionRef<void(size_t, const char*)> hit);
  // Keeps rows, which `write` writes, for those of different keys that are not there.
  void Insert(absl::Span<const KeptKey> keys, Work& work,
              absl::FunctionRef<void(size_t, char*)> write);

  AdCacheStats stats() const;

 private:
  static constexpr size_t kShards = 32;
  // While few ads are found, one piece of a request in so many is looked up.
  static constexpr uint64_t kSample = 256;

  using Rows = FifoRows<KeptKey, char, KeptKeyHash>;
  struct Shard {
    mutable Mutex mu;
    Rows rows ABSL_GUARDED_BY(mu);
  };
  static size_t ShardOf(const KeptKey& key) { return key.hash() >> 59; }
  static_assert(kShards == 32);
  int64_t EntryBytes() const { return row_bytes_ + static_cast<int64_t>(kEntryBytes); }
  // Positions of keys by shard.
  struct ByShard {
    absl::Span<const uint32_t> order;
    std::array<uint32_t, kShards> ends;  // In `order`.
  };
  static ByShard Sort(absl::Span<const KeptKey> keys, Work& work);
  // Calls `visit` with the rows and the position of each key, under the shard's lock.
  template <typename Function>
  void Visit(const ByShard& keys, Function visit);

  struct Counts {
    std::atomic<int64_t> hits{0}, misses{0}, passed{0};
  };

  const int64_t max_bytes_, row_bytes_, capacity_;  // Rows, of a shard.

  const double least_hits_;
  std::array<Shard, kShards> shards_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  std::atomic<int64_t> inserted_{0};
  std::atomic<uint64_t> pieces_{0};
  std::atomic<float> share_{1};  // Of ads that were found, lately.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_CACHES_AD_CACHE_H_
