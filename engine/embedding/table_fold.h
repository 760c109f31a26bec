// Makes one base of a base and its overlay.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_FOLD_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_FOLD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

// The rows of `table`, bit for bit, in a mapped file without a name in `directory`, whose space the
// kernel takes back with the last user.  Slow; memory: as TableFileOptions says.
// INVALID_ARGUMENT if every row was dropped; DATA_LOSS; errors of the file system, and of
// LoadScope::Check.
absl::StatusOr<std::shared_ptr<const TableRows>> FoldTable(const EmbeddingTable& table,
                                                           const std::string& directory,
                                                           int64_t memory_bytes);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_FOLD_H_
