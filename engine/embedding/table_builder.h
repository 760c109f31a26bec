// Makes embedding tables row by row.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

// Collects rows of dim floats and turns them into a table.  Rows are written where the table will
// have its memory and moved to their slots at the end, within that memory.  Not thread-safe.
class TableBuilder {
 public:
  // REQUIRES: dim >= 1.
  TableBuilder(std::string name, int64_t dim);

  // Makes room for `rows` rows in all.  RESOURCE_EXHAUSTED.
  absl::Status Reserve(int64_t rows);
  // The dim floats of the row that Commit will add; until then calls give the same place.
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<float*> NextRow();
  // Adds the row that NextRow gave, under this id.
  void Commit(int64_t id);
  int64_t rows() const { return table_->rows_; }

  struct Duplicate {
    int64_t id = 0;
    int64_t first_row = 0, row = 0;  // In the order of Commit, from 0; row is the second.
  };
  // The first row whose id an earlier row has.
  std::optional<Duplicate> FindDuplicate();
  // Drops all such rows (those behind them move up).  Returns how many.
  int64_t DropDuplicates();
  // What the table's skipped_lines() will be; 0 without a call.
  void SetSkippedLines(int64_t lines) { table_->skipped_lines_ = lines; }

  // The table; the builder is then of no more use.  INVALID_ARGUMENT, without the table's name, if
  // there is no row, an id has two rows, or the default id has none; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> Finish(const TableOptions& options);

 private:
  class RowMover;
  char* Slot(int64_t row) const {
    return table_->slots() + static_cast<size_t>(row) * table_->slot_bytes_;
  }
  int64_t IdAt(int64_t row) const;
  // Of all rows, ascending.
  void SortHashes();
  bool HasDuplicates();
  absl::Status SetMissingRow(const TableOptions& options);
  // Moves every row to the slot of its id.
  void Place();
  void FillEmptySlots(const std::vector<bool>& placed);

  std::unique_ptr<EmbeddingTable> table_;
  std::vector<uint64_t> hashes_;  // SortHashes; empty: to be made.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_
