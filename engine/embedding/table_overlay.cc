// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_overlay.h"

#include <cstring>

#include "base/errors.h"
#include "base/file.h"
#include "base/hash_map.h"
#include "base/load_scope.h"
#include "base/status_macros.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/table_file.h"
#include "engine/embedding/table_file_writer.h"

namespace ulfd::engine {
namespace {

// What stands for a dropped row: one of another id.
const char* RowOfAnother(int64_t id) {
  static constexpr int64_t kIds[] = {0, 1};
  return reinterpret_cast<const char*>(&kIds[id == 0 ? 1 : 0]) + TableRows::kIdBytes;
}

// Writes the slots of `put` in the format of `base`.
absl::Status Copy(const TableRows& put, const TableRows& base, TableDelta& delta) {
  RETURN_IF_ERROR(delta.slots.Resize(static_cast<size_t>(put.rows) * base.slot_bytes));
  std::vector<float> values(static_cast<size_t>(put.dim));
  char* to = static_cast<char*>(delta.slots.data());
  return ForEachRow(put, [&](int64_t id, const char* row) {
    std::memcpy(to, &id, sizeof id);
    char* const encoded = to + TableRows::kIdBytes;
    if (put.format == base.format) {
      std::memcpy(encoded, row, base.used_bytes - TableRows::kIdBytes);
    } else {
      DecodeRow(put.format, row, put.dim, values.data());
      if (!EncodeRow(base.format, values.data(), put.dim, encoded)) {
        return InvalidArgument("id ", id, ": a value is too large for ", Name(base.format));
      }
    }
    to += base.slot_bytes;
    ++delta.rows;
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TableDelta>> TableDelta::Make(const TableRows* put,
                                                                   std::vector<int64_t> drop,
                                                                   const TableRows& base) {
  auto delta = std::make_shared<TableDelta>();
  delta->slot_bytes = base.slot_bytes;
  if (put != nullptr) RETURN_IF_ERROR(Copy(*put, base, *delta));
  HashSet<int64_t> dropped;
  dropped.reserve(drop.size());
  for (const int64_t id : drop) {
    if (!dropped.insert(id).second) {
      return InvalidArgument("id ", id, " is dropped twice");
    }
  }
  for (size_t i = 0; i < delta->rows; ++i) {
    const int64_t id = TableRows::IdOf(delta->Slot(i) + TableRows::kIdBytes);
    if (dropped.contains(id)) {
      return InvalidArgument("id ", id, " is put and dropped");
    }
  }
  delta->drop = std::move(drop);
  return delta;
}

void TableOverlay::Add(std::shared_ptr<const TableDelta> delta) {
  for (size_t i = 0; i < delta->rows; ++i) {
    const char* const row = delta->Slot(i) + TableRows::kIdBytes;
    rows_[TableRows::IdOf(row)] = row;
  }
  for (const int64_t id : delta->drop) rows_[id] = RowOfAnother(id);
  row_count_ += delta->rows + delta->drop.size();
  rows_brought_ += delta->rows + delta->drop.size();
  row_bytes_ += static_cast<int64_t>(delta->slots.bytes() + delta->drop.size() * sizeof(int64_t));
  deltas_.push_back(std::move(delta));
}

template <typename F>
absl::StatusOr<std::shared_ptr<const TableDelta>> TableOverlay::Join(F keep) const {
  auto joined = std::make_shared<TableDelta>();
  std::vector<const char*> rows;
  for (const auto& [id, row] : rows_) {
    if (!keep(id, row)) continue;
    if (IsRowOf(id, row)) {
      rows.push_back(row);
    } else {
      joined->drop.push_back(id);
    }
  }
  joined->slot_bytes = deltas_.front()->slot_bytes;
  joined->rows = rows.size();
  RETURN_IF_ERROR(joined->slots.Resize(rows.size() * joined->slot_bytes));
  char* to = static_cast<char*>(joined->slots.data());
  for (const char* const row : rows) {
    std::memcpy(to, row - TableRows::kIdBytes, joined->slot_bytes);
    to += joined->slot_bytes;
  }
  return joined;
}

void TableOverlay::Compact() {
  if (deltas_.empty()) return;
  auto joined = Join([](int64_t, const char*) { return true; });
  if (!joined.ok()) return;
  const size_t brought = rows_brought_;
  *this = TableOverlay();
  Add(*std::move(joined));
  rows_brought_ = brought;
}

absl::StatusOr<std::shared_ptr<const TableOverlay>> TableOverlay::Beyond(
    const TableOverlay& folded) const {
  for (const auto& [id, row] : folded.rows_) {
    if (Find(id) == nullptr) return FailedPrecondition("id ", id, " has no row to go back to");
  }
  if (deltas_.empty()) return nullptr;
  const auto differs = [&](int64_t id, const char* row) {
    const char* const other = folded.Find(id);
    if (other == row) return false;
    if (other == nullptr || !IsRowOf(id, other) || !IsRowOf(id, row)) return true;
    return std::memcmp(other, row, deltas_.front()->slot_bytes - TableRows::kIdBytes) != 0;
  };
  ASSIGN_OR_RETURN(auto joined, Join(differs));
  if (joined->rows == 0 && joined->drop.empty()) return nullptr;
  auto rest = std::make_shared<TableOverlay>();
  rest->Add(std::move(joined));
  return rest;
}

void TableOverlay::Fill(RowSet& rows) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t id = rows.ids()[i];
    const char* const row = Find(id);
    if (row == nullptr) continue;
    const bool dropped = !IsRowOf(id, row);
    rows.set_state(i, dropped ? RowState::kMissing : RowState::kPresent);
    if (!dropped) std::memcpy(rows.row(i), row, rows.row_bytes());
  }
}

int64_t TableOverlay::bytes() const {
  constexpr size_t kSlot = sizeof(*rows_.begin()) + 1;  // And a byte of control.
  return row_bytes_ + static_cast<int64_t>(rows_.capacity() * kSlot);
}

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
