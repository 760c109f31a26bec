// Writes table files of any size in bounded memory.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/embedding/output_file.h"
#include "engine/embedding/perfect_hash.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/row_sorter.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/text_table.h"

namespace ulfd::engine {

struct TableFileOptions {
  RowFormat format = RowFormat::kFp32;
  // For rows that are sorted; beside it a table takes half a byte for each row, and 7000 rows.
  int64_t memory_bytes = int64_t{256} << 20;
  // The path is a directory, and the file has no name there.
  bool unnamed = false;
  WriteProgress progress = nullptr;  // May be empty.
};

struct TableFileReport : RowReport {
  uint64_t bytes = 0;     // Of the file.
  int64_t displaced = 0;  // Ids that no pilot places.
};

// Rows whose ids follow each other as they come are written as they came.  Others are sorted by the
// hash of their ids (RowSorter): the perfect hash is made part by part, and so are the slots of
// each part.  Runs lie beside the file, which gets its name once it is whole.  Not thread-safe.
class TableFileWriter final : public RowSink {
 public:
  TableFileWriter(std::string path, TableFileOptions options);

  absl::Status Begin(int64_t dim, int64_t about_rows) override;
  absl::StatusOr<float*> NextRow() override { return rows_.NextRow(); }
  absl::Status Commit(int64_t id) override { return rows_.Commit(id); }
  // Adds a row that is in the format already.  It does not count for the report and the mean row.
  absl::Status CommitEncoded(int64_t id, const char* row) { return rows_.CommitEncoded(id, row); }
  // INVALID_ARGUMENT if there is no row or, naming it, an id has two; RESOURCE_EXHAUSTED if ids
  // were chosen to collide.  Called once.
  absl::StatusOr<TableFileReport> Finish();
  // Of an unnamed file: where to open it, as long as this object.
  std::string unnamed_path() const { return file_.DescriptorPath(); }

 private:
  class Slots;  // The slots of a part, and rows that wait for the end.

  // Gives the file, which is whole, its name.
  absl::Status Publish();
  // Everything between the header and the checksums.
  absl::Status WriteConsecutive(TableFileHeader& header);
  absl::Status WriteHashed(TableFileHeader& header);
  absl::Status WriteParts(uint64_t begin, int64_t rows, SortedRows& sorted,
                          PerfectHashBuilder& hash, Slots& slots);
  absl::Status WriteRest(const TableFileHeader& header, const PerfectHash& hash,
                         const Slots& slots);
  absl::Status WriteMeanRow(const TableFileHeader& header);
  // LoadScope::Check, and tells how far it is.
  absl::Status GoOn(int64_t done, int64_t rows) const;
  absl::Status WriteSums(TableFileHeader& header);

  const std::string path_;
  const TableFileOptions options_;
  RowSorter rows_;
  size_t slot_bytes_ = 0;  // 0: before the first Begin.
  OutputFile file_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_FILE_WRITER_H_
