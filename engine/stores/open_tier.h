// Opens what a manifest says of a table's store.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_OPEN_TIER_H_
#define ULFD_ENGINE_STORES_OPEN_TIER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/embedding/row_tier.h"
#include "proto/model_manifest.pb.h"

namespace ulfd::engine {

class RedisClusters;  // engine/stores/redis_store.h

// `directory`: of a table in RocksDB.  `redis`: null without clusters.  A tier that another version
// of the owner (LoadLimits) has open with the same contents and settings is shared, so that rows in
// memory outlast a reload.
absl::StatusOr<std::shared_ptr<RowTier>> OpenRowTier(const ulfd::model::v1::TableStore& store,
                                                     const std::string& directory,
                                                     const RedisClusters* redis);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_OPEN_TIER_H_
