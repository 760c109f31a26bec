// An embedding table in memory: int64 ids -> rows of floats.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/embedding/key_hash.h"
#include "engine/embedding/page_buffer.h"
#include "engine/embedding/perfect_hash.h"

namespace ulfd::engine {

enum class MissingKeys : uint8_t { kZero, kDefaultRow, kError };

struct TableOptions {
  MissingKeys missing_keys = MissingKeys::kZero;
  int64_t default_id = 0;       // kDefaultRow: the id whose row stands in.
  bool skip_bad_lines = false;  // false: a bad line or duplicate id fails the load with file:line.
};

// Every row stands behind its id in a slot, and a perfect hash of the ids leads to the slot: a
// lookup reads the lines of the row and hardly more (see PerfectHash).  An id that the table lacks
// leads to a slot, too, which holds another id.  Memory: 1.09 x ids and rows (up to 1.25 x where
// longer slots save cache lines) and 0.35 bytes per row.  Immutable once made (TableBuilder,
// LoadText); any thread may read.
class EmbeddingTable {
 public:
  // Reads an XDL text table: lines "id,v0,...,v(d-1)", ended by LF or CRLF (the last may lack it);
  // the first line (with skip_bad_lines the first good one) gives d.  Values are decimal numbers as
  // printf's %f and %g or Python's repr write them, a leading + allowed; NaN and infinity, also by
  // overflow, are bad, and so are blanks.  A file without a row is an error.  Errors: "PATH:LINE:
  // ..." (INVALID_ARGUMENT), NOT_FOUND, RESOURCE_EXHAUSTED.  An id that occurs twice is reported
  // once all lines are read.  Memory while loading: that of the finished table and 8 bytes per row.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> LoadText(
      const std::string& name, const std::string& path, const TableOptions& options);

  // The row of `id`, dim() floats, or nullptr if the table lacks it.
  const float* Find(int64_t id) const {
    const float* row = probe().Candidate(HashKey(id));
    return Holds(row, id) ? row : nullptr;
  }

  // Find in three steps, for lookups of many ids with the steps of others in between (see
  // PoolFeatures).  A Probe is what the first two need, by value, for loops; valid as long as the
  // table.
  class Probe {
   public:
    // First: hints what Candidate reads; `hash` is HashKey(id).
    void PrefetchCandidate(uint64_t hash) const { hash_.Prefetch(hash); }
    // Then: the only row that may be that of the id; never nullptr, whatever the id.
    const float* Candidate(uint64_t hash) const {
      return reinterpret_cast<const float*>(slots_ + hash_.Slot(hash) * slot_bytes_ + kIdBytes);
    }
    // Hints the cache lines of a row and its id.
    void PrefetchRow(const float* row) const {
      const auto begin = reinterpret_cast<uintptr_t>(row) - kIdBytes;
      const uintptr_t end = begin + used_bytes_;
      for (uintptr_t line = begin & ~uintptr_t{63}; line < end; line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(line));
      }
    }

   private:
    friend class EmbeddingTable;
    explicit Probe(const EmbeddingTable& table)
        : slots_(table.slots()),
          slot_bytes_(table.slot_bytes_),
          used_bytes_(table.used_bytes_),
          hash_(table.hash_.probe()) {}
    const char* slots_;
    size_t slot_bytes_, used_bytes_;
    PerfectHash::Probe hash_;
  };
  Probe probe() const { return Probe(*this); }
  // At last: whether a Candidate is the row of `id`.
  static bool Holds(const float* row, int64_t id) { return IdOf(row) == id; }

  // Some id of the table, picked by `number`; nothing where that picks an unused slot.  For made-up
  // requests.
  std::optional<int64_t> Sample(uint64_t number) const {
    const float* row = probe().Candidate(HashKey(static_cast<int64_t>(number)));
    const int64_t id = IdOf(row);
    return Find(id) == row ? std::optional(id) : std::nullopt;
  }

  const std::string& name() const { return name_; }
  int64_t dim() const { return dim_; }
  int64_t rows() const { return rows_; }
  // Memory held: slots and index.
  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes() + hash_.bytes()); }
  // Bad or duplicate lines left out under skip_bad_lines.
  int64_t skipped_lines() const { return skipped_lines_; }
  MissingKeys missing_keys() const { return missing_keys_; }
  // kDefaultRow: the row to use for an id that is missing; nullptr otherwise.
  const float* missing_row() const { return missing_row_; }

 private:
  friend class TableBuilder;
  static constexpr size_t kIdBytes = sizeof(int64_t);

  EmbeddingTable() = default;
  static int64_t IdOf(const float* row) {
    int64_t id;  // At any multiple of 4 bytes.
    std::memcpy(&id, reinterpret_cast<const char*>(row) - kIdBytes, kIdBytes);
    return id;
  }
  char* slots() const { return static_cast<char*>(memory_.data()); }

  std::string name_;
  int64_t dim_ = 0;
  int64_t rows_ = 0;
  size_t slot_bytes_ = 0;
  size_t used_bytes_ = 0;  // Of a slot: the id and the row.
  int64_t skipped_lines_ = 0;
  MissingKeys missing_keys_ = MissingKeys::kZero;
  const float* missing_row_ = nullptr;
  PageBuffer memory_;  // Slots, from a page on.
  PerfectHash hash_;   // HashKey(id) -> slot.
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_H_
