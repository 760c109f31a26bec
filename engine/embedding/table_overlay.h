// What deltas changed in a table since its base was made.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_OVERLAY_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_OVERLAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

// What one delta does to one table.  Immutable once made.
struct TableDelta {
  // `put`: the rows to put, of the dim of `base`, into whose format they are brought.  Errors name
  // the id: INVALID_ARGUMENT for a value that the format cannot hold or an id that is put and
  // dropped or dropped twice; DATA_LOSS; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<const TableDelta>> Make(const TableRows* put,
                                                                std::vector<int64_t> drop,
                                                                const TableRows& base);
  const char* Slot(size_t i) const {
    return static_cast<const char*>(slots.data()) + i * slot_bytes;
  }

  PageBuffer slots;  // Each an id and its row, as those of the base.
  size_t slot_bytes = 0;
  size_t rows = 0;
  std::vector<int64_t> drop;
};

// The rows of some deltas, one after the other, over a base.  Immutable once shared; any thread may
// read.
class TableOverlay {
 public:
  // The row of `id`, its id before it.  One that was dropped leads to a row of another id, and one
  // that no delta speaks of to nullptr.
  const char* Find(int64_t id) const {
    const auto row = rows_.find(id);
    return row == rows_.end() ? nullptr : row->second;
  }
  void Prefetch(absl::Span<const int64_t> ids) const {
    for (const int64_t id : ids) rows_.prefetch(id);
  }
  // Replaces those of `rows` whose ids are found here.
  void Replace(const int64_t* ids, size_t count, const void** rows) const {
    for (size_t i = 0; i < count; ++i) {
      if (const char* const row = Find(ids[i]); row != nullptr) rows[i] = row;
    }
  }

  // The same for the rows that a request needs of a table in a store: those that are found here are
  // there, or missing, without it.
  void Fill(RowSet& rows) const;

  // Before it is shared.
  void Add(std::shared_ptr<const TableDelta> delta);
  // The same: gives back rows that a later delta replaced, if there is memory to do so.
  void Compact();

  // What stays of it over a base into which `folded`, of the same base as this one, was folded;
  // null if nothing does.  FAILED_PRECONDITION if `folded` has an id of which this one does not
  // speak, as after a rollback; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<const TableOverlay>> Beyond(const TableOverlay& folded) const;

  // Calls `row` with every id that has a row here, until it fails.
  template <typename F>
  absl::Status ForEachRow(F row) const {
    for (const auto& [id, found] : rows_) {
      if (!IsRowOf(id, found)) continue;
      if (absl::Status status = row(id, found); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  size_t ids() const { return rows_.size(); }
  // Rows held, those that a later delta replaced included.
  size_t rows() const { return row_count_; }
  // Rows that all deltas brought, those that were given back included.
  size_t rows_brought() const { return rows_brought_; }
  // Memory held.
  int64_t bytes() const;

 private:
  // Whether what is found for the id is its row: it was not dropped.
  static bool IsRowOf(int64_t id, const char* row) { return TableRows::IdOf(row) == id; }
  // One delta for the entries for which `keep(id, row)` is true.  RESOURCE_EXHAUSTED.
  template <typename F>
  absl::StatusOr<std::shared_ptr<const TableDelta>> Join(F keep) const;

  HashMap<int64_t, const char*, KeyHash> rows_;
  std::vector<std::shared_ptr<const TableDelta>> deltas_;
  size_t row_count_ = 0;
  size_t rows_brought_ = 0;
  int64_t row_bytes_ = 0;
};

// The rows of `table`, bit for bit, in a mapped file without a name in `directory`, whose space the
// kernel takes back with the last user.  Slow; memory: as TableFileOptions says.
// INVALID_ARGUMENT if every row was dropped; DATA_LOSS; errors of the file system, and of
// LoadScope::Check.
absl::StatusOr<std::shared_ptr<const TableRows>> FoldTable(const EmbeddingTable& table,
                                                           const std::string& directory,
                                                           int64_t memory_bytes);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_OVERLAY_H_
