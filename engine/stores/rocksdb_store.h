// Tables in RocksDB: complete on the local disk, read by any number of daemons.
//
// Keys: "m" -> StoredTable; "r" and the id's HashKey, big-endian, -> the row.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_ROCKSDB_STORE_H_
#define ULFD_ENGINE_STORES_ROCKSDB_STORE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/row_sorter.h"
#include "engine/embedding/row_store.h"
#include "engine/embedding/text_table.h"

namespace ulfd::engine {

// Opens the directory to read, and writes nothing there.  Every file in it must be one that the
// load may open (LoadScope).  NOT_FOUND, INVALID_ARGUMENT, DATA_LOSS; UNIMPLEMENTED in a build
// without RocksDB.  Errors name the directory, those of reads the id, too.
absl::StatusOr<std::unique_ptr<const RowStore>> OpenRocksdb(const std::string& directory);

// Writes the rows of a sorter that is not finished yet as a directory of RocksDB, which must not be
// there before; it gets its name once it is whole.  `progress` may be null.
absl::StatusOr<RowReport> WriteRocksdb(const std::string& directory, RowSorter& rows,
                                       const WriteProgress& progress);

// Gives all rows of such a directory to `sink`.  Errors as of OpenRocksdb, and those of `sink`;
// DATA_LOSS if they are not the rows that were written, which may be known after the last one.
absl::Status ReadRocksdb(const std::string& directory, RowSink& sink);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_ROCKSDB_STORE_H_
