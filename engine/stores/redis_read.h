// One read of many keys over all nodes of a Redis Cluster.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_READ_H_
#define ULFD_ENGINE_STORES_REDIS_READ_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/embedding/row_store.h"
#include "engine/stores/redis_cluster.h"

namespace ulfd::engine {

struct RedisKey {
  std::string key;
  uint16_t slot = 0;
  RowRead* read = nullptr;
  size_t row = 0;  // In read->rows.
};

// Fills in the rows of `keys` and the status of their reads (RowStore::Read).  One MGET for the
// keys of a slot, all of a node in one go; a node that is slow, or does not answer, is passed by
// for another one with the same slots.  That a row is missing is believed of masters alone: a
// replica may not have it yet, or no longer, while slots move.
void ReadRedis(RedisCluster& cluster, std::vector<RedisKey> keys, TimePoint deadline);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_READ_H_
