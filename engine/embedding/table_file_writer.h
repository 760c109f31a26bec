// Writes table files of any size in bounded memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/text_table.h"

namespace ulfd::engine {

struct TableFileOptions {
  RowFormat format = RowFormat::kFp32;
  // For rows that are sorted; beside it a table takes half a byte for each row.
  int64_t memory_bytes = int64_t{256} << 20;
  // The path is a directory, and the file has no name there.
  bool unnamed = false;
  // Told rows written of all, now and then.  May be empty.
  std::function<void(int64_t done, int64_t all)> progress = nullptr;
};

// What the format did to the values.
struct TableFileReport {
  int64_t rows = 0;
  int64_t dim = 0;
  uint64_t bytes = 0;        // Of the file.
  int64_t displaced = 0;     // Ids that are found through the index beside the pilots.
  double largest_error = 0;  // Of any value, absolute;
  int64_t largest_error_id = 0;
  double root_mean_square_error = 0;  // of all values,
  double root_mean_square = 0;        // and that of the values themselves.
};

// A descriptor that is closed.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  // Creates or empties the file.
  absl::Status Open(const std::string& path);
  // Creates a file without a name, of which nothing is left once it is closed.
  absl::Status OpenUnnamed(const std::string& directory);
  // By which this process, and no other, can open it again.
  std::string DescriptorPath() const;
  absl::Status WriteAt(uint64_t offset, const char* from, size_t size);
  absl::Status ReadAt(uint64_t offset, char* to, size_t size) const;
  absl::Status Resize(uint64_t size);
  // Makes the content outlast a power cut.
  absl::Status Sync();

 private:
  absl::Status Failed(absl::string_view what) const;
  std::string path_;
  int fd_ = -1;
};

// Rows are encoded, sorted in runs by the hash of their ids, and merged: the perfect hash is made
// part by part, and so are the slots of each part.  Runs lie beside the file, under no name.  The
// file gets its name once it is whole.  Not thread-safe.
class TableFileWriter final : public RowSink {
 public:
  TableFileWriter(std::string path, TableFileOptions options);
  ~TableFileWriter() override;

  // For every source; all must have the same dim.
  absl::Status Begin(int64_t dim, int64_t about_rows) override;
  absl::StatusOr<float*> NextRow() override { return row_.data(); }
  // INVALID_ARGUMENT, naming the id, for values that are not finite or too large for the format.
  absl::Status Commit(int64_t id) override;
  // Adds a row that is in the format already.  It does not count for the report and the mean row.
  absl::Status CommitEncoded(int64_t id, const char* row);
  // INVALID_ARGUMENT if there is no row or, naming it, an id has two.  Called once.
  absl::StatusOr<TableFileReport> Finish();
  // Of an unnamed file: where to open it, as long as this object.
  std::string unnamed_path() const { return file_.DescriptorPath(); }

 private:
  class Runs;   // Sorted rows, in the order of their hashes over all runs.
  class Slots;  // The slots of a part, and rows that wait for the end.

  size_t record_bytes() const { return TableRows::kIdBytes + RowBytes(options_.format, dim_); }
  absl::Status Begun(int64_t dim, int64_t about_rows);
  absl::Status OpenFiles();
  // Room for the encoded row of `id`, among those that are sorted next.
  absl::StatusOr<char*> NextRecord(int64_t id);
  // Gives the file, which is whole, its name.
  absl::Status Publish();
  void NoteError(int64_t id, const char* encoded);
  // Sorts the rows in memory and appends them to the runs.
  absl::Status Spill();
  absl::Status WriteParts(uint64_t begin, PerfectHashBuilder& hash, Slots& slots);
  absl::Status WriteRest(const TableFileLayout& layout, const PerfectHash& hash, const Slots& slots,
                         absl::Span<const PerfectHash::Displaced> displaced);
  absl::Status WriteSums(TableFileHeader& header);

  const std::string path_, new_path_;
  const TableFileOptions options_;
  int64_t dim_ = 0;  // 0: before the first Begin.
  size_t slot_bytes_ = 0;
  std::vector<float> row_, decoded_;
  std::optional<MeanRow> mean_;
  double squared_errors_ = 0, squares_ = 0;
  TableFileReport report_;

  size_t records_per_run_ = 0;
  std::vector<char> records_;
  std::vector<std::pair<uint64_t, uint32_t>> order_;  // Hash and number of each record.
  std::vector<uint64_t> run_rows_;
  OutputFile spill_, file_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_
