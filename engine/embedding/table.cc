// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/embedding/table_builder.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_overlay.h"

namespace ulfd::engine {

namespace {

std::string LacksDefault(int64_t id) { return absl::StrCat("lacks the default id ", id); }

}  // namespace

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::Make(
    const std::string& name, std::shared_ptr<const TableRows> rows, const TableOptions& options) {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable(name, std::move(rows), options));
  if (options.missing_keys == MissingKeys::kMeanRow) {
    const char* const mean = table->rows_->Row(table->rows_->slot_count());
    table->stand_in_.assign(mean, mean + RowBytes(table->format(), table->dim()));
  }
  if (table->SetMissingRow()) return table;
  return InvalidArgument(LacksDefault(options.default_id));
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::MakeTiered(
    const std::string& name, std::shared_ptr<RowTier> tier, const TableOptions& options) {
  constexpr std::chrono::seconds kPatience(10);
  const StoredTableInfo& stored = tier->table();
  auto rows = std::make_shared<TableRows>();
  rows->dim = stored.dim;
  rows->rows = stored.rows;
  rows->format = stored.format;
  rows->used_bytes = TableRows::kIdBytes + stored.row_bytes();
  rows->slot_bytes = BestSlotBytes(rows->used_bytes);  // Of rows that deltas put.
  rows->digest = stored.digest;
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable(name, std::move(rows), options));
  if (options.missing_keys == MissingKeys::kMeanRow) table->stand_in_ = stored.mean_row;
  if (options.missing_keys == MissingKeys::kDefaultRow) {
    ASSIGN_OR_RETURN(RowSet row, tier->Read({&options.default_id, 1},
                                            std::chrono::steady_clock::now() + kPatience));
    if (row.state(0) == RowState::kPresent) table->stand_in_.assign(row.row(0), row.row_bytes());
  }
  table->tier_ = std::move(tier);
  if (table->SetMissingRow()) return table;
  return InvalidArgument(LacksDefault(options.default_id));
}

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::With(
    std::shared_ptr<const TableRows> rows, std::shared_ptr<const TableOverlay> overlay) const {
  std::unique_ptr<EmbeddingTable> table(new EmbeddingTable(*this));
  table->rows_ = std::move(rows);
  table->overlay_ = std::move(overlay);
  if (table->SetMissingRow()) return table;
  return FailedPrecondition(LacksDefault(default_id()));
}

bool EmbeddingTable::SetMissingRow() {
  const void* const stand_in = stand_in_.empty() ? nullptr : stand_in_.data();
  if (missing_keys() == MissingKeys::kMeanRow) missing_row_ = stand_in;
  if (missing_keys() != MissingKeys::kDefaultRow) return true;
  const void* const put = overlay_ == nullptr ? nullptr : OverlayRow(default_id());
  if (put != nullptr) {
    missing_row_ = Holds(put, default_id()) ? put : nullptr;
  } else {
    missing_row_ = tier_ == nullptr ? Find(default_id()) : stand_in;
  }
  return missing_row_ != nullptr;
}

absl::Status EmbeddingTable::CheckRead(absl::Span<const int64_t> ids) const {
  if (Check().ok()) return absl::OkStatus();
  const auto check = [this](int64_t id) {
    if (overlay_ != nullptr && overlay_->Find(id) != nullptr) return absl::OkStatus();
    return Annotate(rows_->file->CheckRead(rows_->Slot(rows_->SlotOf(id)), rows_->slot_bytes),
                    "id ", id);
  };
  if (missing_keys() == MissingKeys::kDefaultRow) RETURN_IF_ERROR(check(default_id()));
  for (const int64_t id : ids) RETURN_IF_ERROR(check(id));
  return absl::OkStatus();
}

const void* EmbeddingTable::OverlayRow(int64_t id) const { return overlay_->Find(id); }

absl::StatusOr<std::unique_ptr<const EmbeddingTable>> EmbeddingTable::Load(
    const std::string& name, const std::string& path, const TableOptions& options) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const bool is_table_file, IsTableFile(file));
  if (!is_table_file) return LoadText(name, path, options);
  ASSIGN_OR_RETURN(std::shared_ptr<const TableRows> rows, OpenTableFile(file));
  ASSIGN_OR_RETURN(auto table, Annotate(Make(name, std::move(rows), options), path));
  RETURN_IF_ERROR(table->Check());  // To look up the default row is to read.
  return table;
}

}  // namespace ulfd::engine
