// Rows in any order -> encoded rows in the order of their hashes or ids, in bounded memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_SORTER_H_
#define ULFD_ENGINE_EMBEDDING_ROW_SORTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/output_file.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/text_table.h"

namespace ulfd::engine {

struct RowSorterOptions {
  RowFormat format = RowFormat::kFp32;
  int64_t memory_bytes = int64_t{256} << 20;  // For rows that are sorted.
  bool unnamed = false;                       // The path is a directory.
  // Rows whose ids follow each other as they come, ascending, stay in that order.
  bool keep_consecutive = false;
};

// What the rows are, and what the format did to their values.
struct RowReport {
  int64_t rows = 0;
  int64_t dim = 0;
  double largest_error = 0;  // Of any value, absolute;
  int64_t largest_error_id = 0;
  double root_mean_square_error = 0;  // of all values,
  double root_mean_square = 0;        // and that of the values themselves.
};

// Told rows written of all, now and then; its error ends the writing.
using WriteProgress = std::function<absl::Status(int64_t done, int64_t all)>;

// Rows are encoded and sorted in runs; SortedRows merges them.  Not thread-safe.
class RowSorter final : public RowSink {
 public:
  // Runs are written to a file beside `path`.
  RowSorter(std::string path, const RowSorterOptions& options);

  // For every source; all must have the same dim.
  absl::Status Begin(int64_t dim, int64_t about_rows) override;
  absl::StatusOr<float*> NextRow() override { return row_.data(); }
  // INVALID_ARGUMENT, naming the id, for values that are not finite or too large for the format.
  absl::Status Commit(int64_t id) override;
  // Adds a row that is in the format already.  It does not count for the report and the mean row.
  absl::Status CommitEncoded(int64_t id, const char* row);
  // After the last row.  INVALID_ARGUMENT if there is none.
  absl::StatusOr<RowReport> Finish();

  const RowSorterOptions& options() const { return options_; }
  int64_t dim() const { return dim_; }
  // After Finish: of rows that are in the order of their ids, which follow each other; none: they
  // are in the order of their hashes.
  std::optional<int64_t> first_id() const { return first_id_; }
  // Of an id and its encoded row, as they follow each other.
  size_t record_bytes() const { return sizeof(int64_t) + RowBytes(options_.format, dim_); }
  // The mean of all rows, encoded.
  std::string EncodedMean() const;

 private:
  friend class SortedRows;
  absl::Status Begun(int64_t dim, int64_t about_rows);
  // Room for the encoded row of `id`, among those that are sorted next.
  absl::StatusOr<char*> NextRecord(int64_t id);
  void NoteError(int64_t id, const char* encoded);
  // By what the records are sorted: HashKey, or the order of ids where there is a first_id.
  uint64_t KeyOf(int64_t id) const;
  // Sorts the rows in memory and appends them to the runs.
  absl::Status Spill();
  // Writes the rows in memory, sorted, to this place of the runs.
  absl::Status WriteRun(uint64_t offset);
  // The ids do not follow each other after all: sorts what is there by hash.
  absl::Status SortByHash();

  const std::string path_;
  const RowSorterOptions options_;
  int64_t dim_ = 0;  // 0: before the first Begin.
  std::vector<float> row_, decoded_;
  std::optional<MeanRow> mean_;
  double squared_errors_ = 0, squares_ = 0;
  RowReport report_;

  size_t records_per_run_ = 0;
  std::vector<char> records_;
  std::vector<std::pair<uint64_t, uint32_t>> order_;  // Key and number of each record.
  std::optional<int64_t> first_id_;                   // So far.
  std::vector<uint64_t> run_rows_;
  OutputFile spill_;
};

// The records of a sorter that is finished, in order.  Each run has a window of its rows in memory,
// a quarter of the sorter's in all; a heap finds the least key.
class SortedRows {
 public:
  // `sorter` is borrowed.
  explicit SortedRows(const RowSorter& sorter);
  absl::Status Start();
  bool empty() const { return heap_.empty(); }
  // What the record is sorted by: RowSorter::KeyOf its id.
  uint64_t key() const { return heap_.top().first; }
  const char* record() const { return runs_[heap_.top().second].At(record_bytes_); }
  int64_t id() const;
  const char* row() const { return record() + sizeof(int64_t); }
  // Goes on to the next.  INVALID_ARGUMENT if it has the same id.
  absl::Status Next();

 private:
  struct Run {
    const char* At(size_t record_bytes) const { return window.data() + next * record_bytes; }
    uint64_t offset = 0, left = 0;  // Of what is not in the window yet.
    std::vector<char> window;
    size_t next = 0;  // In the window.
  };
  using Head = std::pair<uint64_t, size_t>;  // Key, run.

  absl::Status Offer(size_t r);

  const RowSorter& sorter_;
  const size_t record_bytes_;
  size_t window_rows_ = 0;
  std::vector<Run> runs_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heap_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_SORTER_H_
