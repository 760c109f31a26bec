// An embedding table: int64 ids -> rows.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/table_file.h"

namespace ulfd::engine {

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::Make(
    const std::string& name, std::shared_ptr<const TableRows> rows, const TableOptions& options) {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable());
  table->name_ = name;
  table->rows_ = std::move(rows);
  table->missing_keys_ = options.missing_keys;
  if (options.missing_keys == MissingKeys::kMeanRow) {
    table->missing_row_ = table->rows_->Row(table->rows_->hash.slots());
  }
  if (options.missing_keys == MissingKeys::kDefaultRow) {
    table->missing_row_ = table->Find(options.default_id);
    if (table->missing_row_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("lacks the default id ", options.default_id));
    }
  }
  return table;
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::Load(
    const std::string& name, const std::string& path, const TableOptions& options) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const bool is_table_file, IsTableFile(file));
  if (!is_table_file) return LoadText(name, path, options);
  ASSIGN_OR_RETURN(std::shared_ptr<const TableRows> rows, OpenTableFile(file));
  auto table = Make(name, std::move(rows), options);
  if (!table.ok()) return Annotate(table.status(), path);
  RETURN_IF_ERROR((*table)->Check());  // To look up the default row is to read.
  return table;
}

}  // namespace ulfd::engine
