// An embedding table: int64 ids -> rows.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapped_file.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"
#include "engine/embedding/perfect_hash.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/row_tier.h"

namespace ulfd::engine {

enum class MissingKeys : uint8_t { kZero, kDefaultRow, kMeanRow, kError };

struct TableOptions {
  MissingKeys missing_keys = MissingKeys::kZero;
  int64_t default_id = 0;  // kDefaultRow: the id whose row stands in.
  // Of text: false: a bad line or duplicate id fails the load with file:line.
  bool skip_bad_lines = false;
};

// The rows of a table, which several EmbeddingTables may share: those of several versions, or of
// several models.  Every row stands behind its id in a slot.  Ids that follow each other lead to
// the slot by themselves, others by a perfect hash.  Immutable once made.
struct TableRows {
  static constexpr size_t kIdBytes = sizeof(int64_t);

  const char* Slot(size_t slot) const { return slots + slot * slot_bytes; }
  // Row of a slot; its id stands before it.
  const char* Row(size_t slot) const { return Slot(slot) + kIdBytes; }
  static int64_t IdOf(const void* row) {
    int64_t id;  // At any multiple of 4 bytes.
    std::memcpy(&id, static_cast<const char*>(row) - kIdBytes, kIdBytes);
    return id;
  }
  // Of two ids; a large number if `to` is less.
  static uint64_t Distance(int64_t from, int64_t to) {
    return static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  }
  size_t slot_count() const {
    return first_id.has_value() ? static_cast<size_t>(rows) : hash.slots();
  }
  // The only slot that may hold the row of `id`.
  size_t SlotOf(int64_t id) const {
    if (!first_id.has_value()) return hash.Slot(HashKey(id));
    const uint64_t place = Distance(*first_id, id);
    return place < static_cast<uint64_t>(rows) ? place : 0;
  }

  int64_t dim = 0;
  int64_t rows = 0;
  int64_t skipped_lines = 0;  // Of text: bad or duplicate ones left out.
  RowFormat format = RowFormat::kFp32;
  size_t slot_bytes = 0;
  size_t used_bytes = 0;  // Of a slot: the id and the row.
  // slot_count() of them, and in files one more, which holds the mean row.
  const char* slots = nullptr;
  std::optional<int64_t> first_id;         // Slot i holds id *first_id + i, and `hash` is empty.
  PerfectHash hash;                        // HashKey(id) -> slot.
  PageBuffer memory;                       // The slots, from a page on, and
  std::unique_ptr<const MappedFile> file;  // the file: one of both holds them.
  std::string digest;  // Tells contents of files apart; empty for rows that come from none.
};

class TableOverlay;  // engine/embedding/table_overlay.h

// Every row stands behind its id in a slot, to which the id or a perfect hash of it leads: a lookup
// reads the lines of the row and hardly more (see PerfectHash).  An id that the table lacks leads
// to a slot, too, which holds another id.  Memory: ids and rows (up to 1.15 x where longer slots
// save cache lines), of hashed ids 1.09 x that and 0.35 bytes per row, or, of a table file, its
// pages.  Rows of deltas stand in an overlay, which goes before the base.  Immutable once made;
// any thread may read.
class EmbeddingTable {
 public:
  // Opens what lies at `path`: a table file (table_file.h), known by its first bytes, or text.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> Load(const std::string& name,
                                                                    const std::string& path,
                                                                    const TableOptions& options);
  // A table of these rows.  INVALID_ARGUMENT, without the table's name, if the default id has none.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> Make(
      const std::string& name, std::shared_ptr<const TableRows> rows, const TableOptions& options);

  // A table whose rows lie in a store.  INVALID_ARGUMENT, without the table's name, if the default
  // id has none; errors of the store.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> MakeTiered(
      const std::string& name, std::shared_ptr<RowTier> tier, const TableOptions& options);

  // This table with another base and overlay (null: none); of a store: over the same one.  The mean
  // row stays what it was.  FAILED_PRECONDITION, without the table's name, if the default id has no
  // row there.
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> With(
      std::shared_ptr<const TableRows> rows, std::shared_ptr<const TableOverlay> overlay) const;

  // Reads an XDL text table: lines "id,v0,...,v(d-1)", ended by LF or CRLF (the last may lack it);
  // the first line (with skip_bad_lines the first good one) gives d.  Values are decimal numbers as
  // printf's %f and %g or Python's repr write them, a leading + allowed; NaN and infinity, also by
  // overflow, are bad, and so are blanks.  A file without a row is an error.  Errors: "PATH:LINE:
  // ..." (INVALID_ARGUMENT), NOT_FOUND, RESOURCE_EXHAUSTED.  An id that occurs twice is reported
  // once all lines are read.  Memory while loading: that of the finished table and 8 bytes per row.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> LoadText(
      const std::string& name, const std::string& path, const TableOptions& options);

  // Not null: rows lie in a store.  Those that a request needs are gathered before they are looked
  // up (Model::FindRows), and found in its RowSet; the functions below find nothing.
  RowTier* tier() const { return tier_.get(); }

  // The row of `id`, dim() values in the table's format, or nullptr if the table lacks it.
  const void* Find(int64_t id) const {
    if (tier_ != nullptr) return nullptr;
    const void* row = CandidateOf(id);
    return Holds(row, id) ? row : nullptr;
  }

  // Find in steps, for lookups of many ids with the steps of others in between (see PoolFeatures).
  // A Probe is what all but the last need, by value, for loops; valid as long as the table.
  class Probe {
   public:
    // Of a table whose ids follow each other the id is enough: whether the base has it, and a
    // Candidate.  Without a branch, which would be predicted wrong where many ids are missing.
    bool consecutive() const { return consecutive_; }
    bool Has(int64_t id) const { return Place(id) < rows_; }
    const void* CandidateAt(int64_t id) const {
      const uint64_t place = Place(id) & -static_cast<uint64_t>(Has(id));
      return slots_ + place * slot_bytes_ + TableRows::kIdBytes;
    }
    // Of others first: the byte that leads to the row; `hash` is HashKey(id).
    const uint8_t* Pilot(uint64_t hash) const { return hash_.Pilot(hash); }
    // Then: the only row of the base that may be that of the id; never nullptr, whatever the id.
    // Where there is an overlay(), its row goes before.
    const void* Candidate(uint64_t hash, const uint8_t* pilot) const {
      return slots_ + hash_.SlotOf(hash, pilot) * slot_bytes_ + TableRows::kIdBytes;
    }
    // Hints the cache lines of rows and their ids.  Inlined early: GCC takes a function that only
    // prefetches for one without effect and drops the call.
    [[gnu::always_inline]] void PrefetchRows(const void* const* rows, size_t count) const {
      const size_t last = used_bytes_ - 1;
      for (size_t i = 0; i < count; ++i) {
        const char* const begin = static_cast<const char*>(rows[i]) - TableRows::kIdBytes;
        __builtin_prefetch(begin);
        for (size_t line = 64; line < last; line += 64) __builtin_prefetch(begin + line);
        __builtin_prefetch(begin + last);
      }
    }

   private:
    friend class EmbeddingTable;
    uint64_t Place(int64_t id) const { return TableRows::Distance(first_id_, id); }
    explicit Probe(const TableRows& rows)
        : slots_(rows.slots),
          slot_bytes_(rows.slot_bytes),
          used_bytes_(rows.used_bytes),
          consecutive_(rows.first_id.has_value()),
          first_id_(rows.first_id.value_or(0)),
          rows_(static_cast<uint64_t>(rows.rows)),
          hash_(rows.hash.probe()) {}
    const char* slots_;
    size_t slot_bytes_, used_bytes_;
    bool consecutive_;
    int64_t first_id_;
    uint64_t rows_;
    PerfectHash::Probe hash_;
  };
  Probe probe() const { return Probe(*rows_); }
  // At last: whether a Candidate is the row of `id`.
  static bool Holds(const void* row, int64_t id) { return TableRows::IdOf(row) == id; }

  // Rows that deltas put or dropped; nullptr: none.
  const TableOverlay* overlay() const { return overlay_.get(); }
  // Without the overlay.
  const std::shared_ptr<const TableRows>& base() const { return rows_; }

  // Some id of the table, picked by `number`; nothing where that picks an unused slot.  For made-up
  // requests.
  std::optional<int64_t> Sample(uint64_t number) const {
    if (tier_ != nullptr) return std::nullopt;
    const void* row =
        rows_->Row(ScaleHash(HashKey(static_cast<int64_t>(number)), rows_->slot_count()));
    const int64_t id = TableRows::IdOf(row);
    return Find(id) == row ? std::optional(id) : std::nullopt;
  }

  const std::string& name() const { return name_; }
  int64_t dim() const { return rows_->dim; }
  // Of the base.
  int64_t rows() const { return rows_->rows; }
  RowFormat format() const { return rows_->format; }
  // Memory held: slots and index of the base, without what is mapped; of a store: what it may come
  // to hold.
  int64_t bytes() const {
    if (tier_ != nullptr) return tier_->bytes();
    return static_cast<int64_t>(rows_->memory.bytes() + rows_->hash.bytes());
  }
  // Of the mapped file; 0 without one.
  int64_t mapped_bytes() const {
    return rows_->file == nullptr ? 0 : static_cast<int64_t>(rows_->file->size());
  }
  // Tells contents of files and stores apart; empty for rows that come from none.
  const std::string& digest() const { return rows_->digest; }
  // DATA_LOSS, naming file and byte, once rows were read that could not be had, or some are
  // damaged.  To be asked after lookups, before what was read is used.
  absl::Status Check() const {
    return rows_->file == nullptr ? absl::OkStatus() : rows_->file->Check();
  }
  // The same, but rows that are damaged matter only if `ids` were looked up in them.
  absl::Status CheckRead(absl::Span<const int64_t> ids) const;
  // Bad or duplicate lines left out under skip_bad_lines.
  int64_t skipped_lines() const { return rows_->skipped_lines; }
  MissingKeys missing_keys() const { return options_.missing_keys; }
  int64_t default_id() const { return options_.default_id; }  // kDefaultRow.
  // kDefaultRow, kMeanRow: the row to use for an id that is missing; nullptr otherwise.
  const void* missing_row() const { return missing_row_; }

 private:
  EmbeddingTable(const std::string& name, std::shared_ptr<const TableRows> rows,
                 const TableOptions& options)
      : name_(name), options_(options), rows_(std::move(rows)) {}
  EmbeddingTable(const EmbeddingTable&) = default;
  const void* CandidateOf(int64_t id) const {
    if (overlay_ != nullptr) {
      if (const void* row = OverlayRow(id); row != nullptr) return row;
    }
    return rows_->Row(rows_->SlotOf(id));
  }

  const void* OverlayRow(int64_t id) const;
  // Whether the default id has a row, if it must have one.
  bool SetMissingRow();

  std::string name_;
  TableOptions options_;
  std::shared_ptr<const TableRows> rows_;  // Of a store: what they are like, and none of them.
  std::shared_ptr<RowTier> tier_;
  std::shared_ptr<const TableOverlay> overlay_;
  // What the base says: its mean row or, of a store, the default row.
  std::string stand_in_;
  const void* missing_row_ = nullptr;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_H_
