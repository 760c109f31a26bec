// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_fold.h"

#include "base/file.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_file_writer.h"
#include "engine/embedding/table_overlay.h"

namespace ulfd::engine {

absl::StatusOr<std::shared_ptr<const TableRows>> FoldTable(const EmbeddingTable& table,
                                                           const std::string& directory,
                                                           int64_t memory_bytes) {
  constexpr int64_t kRowsPerCheck = 4096;
  const TableOverlay& overlay = *table.overlay();
  TableFileWriter writer(directory,
                         {.format = table.format(), .memory_bytes = memory_bytes, .unnamed = true});
  RETURN_IF_ERROR(writer.Begin(table.dim(), table.rows()));
  int64_t rows = 0;
  const auto keep = [&](int64_t id, const char* row) {
    if (++rows % kRowsPerCheck == 0) RETURN_IF_ERROR(LoadScope::Check());
    return writer.CommitEncoded(id, row);
  };
  RETURN_IF_ERROR(ForEachRow(*table.base(), [&](int64_t id, const char* row) {
    return overlay.Find(id) == nullptr ? keep(id, row) : absl::OkStatus();
  }));
  RETURN_IF_ERROR(table.Check());  // Before anybody wonders at rows that are none.
  RETURN_IF_ERROR(overlay.ForEachRow(keep));
  RETURN_IF_ERROR(writer.Finish().status());
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(writer.unnamed_path()));
  return OpenTableFile(file);
}

}  // namespace ulfd::engine
