// What was computed of users, for requests that bring the same user again.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_CACHES_USER_CACHE_H_
#define ULFD_ENGINE_CACHES_USER_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/lru_cache.h"
#include "base/mutex.h"
#include "engine/caches/kept_key.h"

namespace ulfd::engine {

// One user's part.
struct CachedUser {
  std::string values;  // Rows of Schedule::kept, one after another.
  // What computing it counted, per ModelInfo::tables.
  std::vector<int64_t> looked_up_ids, missing_ids;

  int64_t bytes() const {
    return static_cast<int64_t>(sizeof(*this) + values.capacity() +
                                2 * missing_ids.size() * sizeof(int64_t));
  }
};

// Of one model.  A key is of everything that the user's part is computed from.  Thread-safe.
class UserCache {
 public:
  using Compute = absl::FunctionRef<absl::StatusOr<std::shared_ptr<const CachedUser>>()>;

  explicit UserCache(int64_t max_bytes) : max_bytes_(max_bytes), users_(max_bytes) {}

  // One of that size that holds nothing, and goes on counting where this is.
  std::shared_ptr<UserCache> Empty() const;

  // The user of that key, computed if the cache has none.  Waits for another thread that computes
  // the same user; if that fails, computes.  `compute` must not call this.
  absl::StatusOr<std::shared_ptr<const CachedUser>> FindOrCompute(const KeptKey& key,
                                                                  Compute compute);
  CacheStats stats() const;

 private:
  struct Counts {
    std::atomic<int64_t> hits{0}, misses{0};
  };

  const int64_t max_bytes_;
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
  LruCache<CachedUser> users_;
  Mutex mu_;
  CondVar ended_;  // Somebody's computing.
  absl::flat_hash_set<KeptKey, KeptKeyHash> computing_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_CACHES_USER_CACHE_H_
