// What stands in for Redis in a build without it.
// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "engine/stores/redis_store.h"

namespace ulfd::engine {
namespace {

absl::Status NotBuilt() { return Unimplemented("this build is without Redis (ULFD_REDIS)"); }

}  // namespace

class RedisCluster {};

RedisClusters::RedisClusters(std::vector<RedisOptions> options) : options_(std::move(options)) {}
RedisClusters::~RedisClusters() = default;
absl::StatusOr<std::shared_ptr<RedisCluster>> RedisClusters::Get(const std::string&) const {
  return NotBuilt();
}

absl::Status RedisClusters::CheckFiles() const { return absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<const RowStore>> OpenRedis(std::shared_ptr<RedisCluster>,
                                                          const std::string&) {
  return NotBuilt();
}

absl::StatusOr<RowReport> WriteRedis(RedisCluster&, const RedisTableOptions&, RowSorter&,
                                     const WriteProgress&) {
  return NotBuilt();
}

}  // namespace ulfd::engine
