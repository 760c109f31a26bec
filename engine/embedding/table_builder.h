// Makes embedding tables row by row.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/table.h"

namespace ulfd::engine {

// The slot for that many bytes which touches the fewest cache lines; the shortest of those.
size_t BestSlotBytes(size_t used);

// The mean of rows that are added one after the other, in double.
class MeanRow {
 public:
  explicit MeanRow(int64_t dim) : sums_(static_cast<size_t>(dim)) {}
  void Add(const float* row) {
    for (size_t c = 0; c < sums_.size(); ++c) sums_[c] += double{row[c]};
    ++rows_;
  }
  // Of no rows: zeros.
  std::vector<float> Get() const;

 private:
  std::vector<double> sums_;
  int64_t rows_ = 0;
};

// Collects rows of dim floats and turns them into a table.  Rows are written where the table will
// have its memory and moved to their slots at the end, within that memory.  Not thread-safe.
class TableBuilder {
 public:
  // REQUIRES: dim >= 1.
  explicit TableBuilder(int64_t dim);

  // Makes room for `rows` rows in all.  RESOURCE_EXHAUSTED.
  absl::Status Reserve(int64_t rows);
  // The dim floats of the row that Commit will add; until then calls give the same place.
  // RESOURCE_EXHAUSTED.
  absl::StatusOr<float*> NextRow();
  // Adds the row that NextRow gave, under this id.
  void Commit(int64_t id);
  int64_t rows() const { return table_->rows; }

  struct Duplicate {
    int64_t id = 0;
    int64_t first_row = 0, row = 0;  // In the order of Commit, from 0; row is the second.
  };
  // The first row whose id an earlier row has.
  std::optional<Duplicate> FindDuplicate();
  // Drops all such rows (those behind them move up).  Returns how many.
  int64_t DropDuplicates();
  // What the rows' skipped_lines will be; 0 without a call.
  void SetSkippedLines(int64_t lines) { table_->skipped_lines = lines; }
  // What the rows' digest will be; empty without a call.
  void SetDigest(std::string digest) { table_->digest = std::move(digest); }

  // The rows, with their mean in one more slot if `with_mean`; the builder is then of no more use.
  // INVALID_ARGUMENT if there is no row or an id has two; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::shared_ptr<const TableRows>> Finish(bool with_mean = false);

 private:
  class RowMover;
  char* Slot(int64_t row) const {
    return static_cast<char*>(table_->memory.data()) +
           static_cast<size_t>(row) * table_->slot_bytes;
  }
  int64_t IdAt(int64_t row) const { return TableRows::IdOf(Slot(row) + TableRows::kIdBytes); }
  // Whether every id is the one before it and 1.
  bool IsConsecutive() const;
  // Of all rows, ascending.
  void SortHashes();
  bool HasDuplicates();
  std::vector<float> Mean() const;
  // Makes the perfect hash; Place moves every row to the slot of its id.
  absl::Status MakeHash();
  void Place();
  void FillEmptySlots(const std::vector<bool>& placed);

  std::shared_ptr<TableRows> table_;
  std::vector<uint64_t> hashes_;  // SortHashes; empty: to be made.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_BUILDER_H_
