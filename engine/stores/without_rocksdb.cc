// What stands in for RocksDB in a build without it.
// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"
#include "engine/stores/rocksdb_store.h"

namespace ulfd::engine {
namespace {

absl::Status NotBuilt(const std::string& directory) {
  return Unimplemented(directory, ": this build is without RocksDB (ULFD_ROCKSDB)");
}

}  // namespace

absl::StatusOr<std::unique_ptr<const RowStore>> OpenRocksdb(const std::string& directory) {
  return NotBuilt(directory);
}

absl::StatusOr<RowReport> WriteRocksdb(const std::string& directory, RowSorter&,
                                       const WriteProgress&) {
  return NotBuilt(directory);
}

absl::Status ReadRocksdb(const std::string& directory, RowSink&) { return NotBuilt(directory); }

}  // namespace ulfd::engine
