// What RocksDB takes for granted of the list of files that a directory of it has.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_ROCKSDB_MANIFEST_H_
#define ULFD_ENGINE_STORES_ROCKSDB_MANIFEST_H_

#include "absl/status/status.h"
#include "base/file.h"

namespace ulfd::engine {

// INVALID_ARGUMENT where the edits of a MANIFEST go back in time, as in one that was put behind
// itself or another: RocksDB of Debian checks that by an assertion, which ends the process.
// Anything else that is wrong is left to RocksDB.
absl::Status CheckManifest(const InputFile& file);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_ROCKSDB_MANIFEST_H_
