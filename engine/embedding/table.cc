// An embedding table: int64 ids -> rows.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_overlay.h"

namespace ulfd::engine {

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::Make(
    const std::string& name, std::shared_ptr<const TableRows> rows, const TableOptions& options) {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable());
  table->name_ = name;
  table->rows_ = std::move(rows);
  table->missing_keys_ = options.missing_keys;
  table->default_id_ = options.default_id;
  if (options.missing_keys == MissingKeys::kMeanRow) {
    const char* const mean = table->rows_->Row(table->rows_->hash.slots());
    table->mean_row_.assign(mean, mean + RowBytes(table->format(), table->dim()));
  }
  if (!table->SetMissingRow().ok()) {
    return absl::InvalidArgumentError(absl::StrCat("lacks the default id ", options.default_id));
  }
  return table;
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::With(
    std::shared_ptr<const TableRows> rows, std::shared_ptr<const TableOverlay> overlay) const {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable());
  table->name_ = name_;
  table->rows_ = std::move(rows);
  table->overlay_ = std::move(overlay);
  table->missing_keys_ = missing_keys_;
  table->default_id_ = default_id_;
  table->mean_row_ = mean_row_;
  RETURN_IF_ERROR(table->SetMissingRow());
  return table;
}

absl::Status EmbeddingTable::SetMissingRow() {
  if (missing_keys_ == MissingKeys::kMeanRow) missing_row_ = mean_row_.data();
  if (missing_keys_ != MissingKeys::kDefaultRow) return absl::OkStatus();
  missing_row_ = Find(default_id_);
  if (missing_row_ != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("lacks the default id ", default_id_));
}

const void* EmbeddingTable::OverlayRow(int64_t id) const { return overlay_->Find(id); }

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
