// One thread computes a new user, whoever else wants it waits.
// SPDX-License-Identifier: Apache-2.0
#include "engine/caches/user_cache.h"

#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace ulfd::engine {

std::shared_ptr<UserCache> UserCache::Empty() const {
  auto empty = std::make_shared<UserCache>(max_bytes_);
  empty->counts_ = counts_;
  return empty;
}

CacheStats UserCache::stats() const {
  CacheStats stats = users_.stats();
  stats.hits = counts_->hits.load(std::memory_order_relaxed);
  stats.misses = counts_->misses.load(std::memory_order_relaxed);
  return stats;
}

absl::StatusOr<std::shared_ptr<const CachedUser>> UserCache::FindOrCompute(const KeptKey& key,
                                                                           Compute compute) {
  const absl::string_view bytes(reinterpret_cast<const char*>(key.words.data()), sizeof key.words);
  std::shared_ptr<const CachedUser> user;
  {
    MutexLock lock(mu_);
    while (computing_.contains(key)) ended_.Wait(mu_);
    user = users_.Find(bytes);
    (user != nullptr ? counts_->hits : counts_->misses).fetch_add(1, std::memory_order_relaxed);
    if (user != nullptr) return user;
    computing_.insert(key);
  }
  const auto end = absl::MakeCleanup([&] {
    MutexLock lock(mu_);
    computing_.erase(key);
    ended_.NotifyAll();
  });
  ASSIGN_OR_RETURN(user, compute());
  users_.Insert(std::string(bytes), user, user->bytes());
  return user;
}

}  // namespace ulfd::engine
