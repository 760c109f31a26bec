// Tables in a Redis Cluster.
//
// Keys: "{TABLE}" -> StoredTable; "{TABLE/P}ID" -> the row, where P is HashKey(ID) modulo the
// partitions of the table.  The rows of a partition have one slot, so that one MGET reads them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_REDIS_STORE_H_
#define ULFD_ENGINE_STORES_REDIS_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/embedding/row_sorter.h"
#include "engine/embedding/row_store.h"
#include "engine/stores/redis_options.h"

namespace ulfd::engine {

class RedisCluster;

// The clusters of a configuration; each is connected to once it is asked for.  Thread-safe.
class RedisClusters {
 public:
  explicit RedisClusters(std::vector<RedisOptions> options);
  ~RedisClusters();
  // NOT_FOUND, or errors of RedisCluster::Create; UNIMPLEMENTED in a build without Redis.
  absl::StatusOr<std::shared_ptr<RedisCluster>> Get(const std::string& name) const;
  // Whether passwords and certificates of all can be read; connects to none.  Names cluster and
  // file.
  absl::Status CheckFiles() const;

 private:
  const std::vector<RedisOptions> options_;
  mutable Mutex mu_;
  mutable std::map<std::string, std::shared_ptr<RedisCluster>> open_ ABSL_GUARDED_BY(mu_);
};

// Errors name cluster, table and, where there is one, node and key.
absl::StatusOr<std::unique_ptr<const RowStore>> OpenRedis(std::shared_ptr<RedisCluster> cluster,
                                                          const std::string& table);

struct RedisTableOptions {
  std::string table;  // At most 100 letters, digits, "_", "-", "." and ":".
  // Hash tags that its rows are spread over, 1 to 16384.  0: those of the table that is there, or
  // 256.
  uint32_t partitions = 0;
};

// Writes the rows of a sorter that is not finished yet, and then what says that they are there.
// Rows of ids that are written already are replaced; those of other ids stay.  INVALID_ARGUMENT if
// the table is there with another width or format, or an id has two rows: nothing is written then.
absl::StatusOr<RowReport> WriteRedis(RedisCluster& cluster, const RedisTableOptions& options,
                                     RowSorter& rows, const WriteProgress& progress);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_REDIS_STORE_H_
