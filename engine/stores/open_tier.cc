// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/open_tier.h"

#include <chrono>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/load_scope.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "engine/stores/redis_store.h"
#include "engine/stores/rocksdb_store.h"

namespace ulfd::engine {
namespace {

namespace pb = ulfd::model::v1;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience(5);

RowTierOptions OptionsOf(const pb::TableStore& store) {
  RowTierOptions options;
  if (store.cache_bytes() > 0) options.cache.max_bytes = store.cache_bytes();
  if (store.fetch_timeout_ms() > 0) options.fetch_timeout = milliseconds(store.fetch_timeout_ms());
  options.cache.row_lifetime = milliseconds(store.row_lifetime_ms());
  if (store.missing_lifetime_ms() > 0) {
    options.cache.missing_lifetime = milliseconds(store.missing_lifetime_ms());
  }
  return options;
}

// Tiers that are open.  A digest can be forged, so that one owner's must not stand in for another
// one's.
class OpenTiers {
 public:
  static OpenTiers& Get() {
    // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the process.
    static OpenTiers* const tiers = new OpenTiers();
    return *tiers;
  }
  // `elsewhere`: what could not be read of one store of that content may be readable of another.
  std::shared_ptr<RowTier> Share(const std::string& key, std::unique_ptr<const RowStore> store,
                                 const RowTierOptions& options, bool elsewhere) {
    const MutexLock lock(mu_);
    std::erase_if(tiers_, [](const auto& tier) { return tier.second.expired(); });
    std::weak_ptr<RowTier>& known = tiers_[key];
    std::shared_ptr<RowTier> tier = known.lock();
    if (tier != nullptr && !(elsewhere && tier->stats().failures > 0)) return tier;
    tier = std::make_shared<RowTier>(std::move(store), options);
    known = tier;
    return tier;
  }

 private:
  Mutex mu_;
  std::map<std::string, std::weak_ptr<RowTier>> tiers_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<std::unique_ptr<const RowStore>> OpenRedis(const pb::RedisTable& table,
                                                          const RedisClusters* redis) {
  if (redis == nullptr) {
    return NotFound("Redis cluster \"", table.cluster(),
                    "\": is known to a daemon that has it configured, and to `ulf` by --redis");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<RedisCluster> cluster, redis->Get(table.cluster()));
  return OpenRedis(std::move(cluster), table.table());
}

}  // namespace

absl::StatusOr<std::shared_ptr<RowTier>> OpenRowTier(const pb::TableStore& store,
                                                     const std::string& directory,
                                                     const RedisClusters* redis) {
  ASSIGN_OR_RETURN(std::unique_ptr<const RowStore> opened,
                   store.has_redis() ? OpenRedis(store.redis(), redis) : OpenRocksdb(directory));
  pb::TableStore settings = store;
  settings.clear_rocksdb();
  const LoadScope* const load = LoadScope::Current();
  const std::string key = absl::StrCat(load == nullptr ? "" : load->limits().owner, "\n",
                                       opened->table().digest, settings.SerializeAsString());
  std::shared_ptr<RowTier> tier =
      OpenTiers::Get().Share(key, std::move(opened), OptionsOf(store), store.has_rocksdb());
  // Whether rows can be read at all must show before the version serves.  The table may lack the
  // id.
  constexpr int64_t kAny[] = {0};
  RETURN_IF_ERROR(tier->Read(kAny, std::chrono::steady_clock::now() + kPatience).status());
  return tier;
}

}  // namespace ulfd::engine
