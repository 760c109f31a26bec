// An embedding table in memory: int64 ids -> rows of floats.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/embedding/key_index.h"
#include "engine/embedding/page_buffer.h"

namespace ulfd::engine {

enum class MissingKeys : uint8_t { kZero, kDefaultRow, kError };

struct TableOptions {
  MissingKeys missing_keys = MissingKeys::kZero;
  int64_t default_id = 0;       // kDefaultRow: the id whose row stands in.
  bool skip_bad_lines = false;  // false: a bad line or duplicate id fails the load with file:line.
};

// Rows lie one after another, unpadded, from a page boundary on; beside them stands a KeyIndex.
// Immutable after Load; any thread may read.
class EmbeddingTable {
 public:
  // Reads an XDL text table: lines "id,v0,...,v(d-1)", ended by LF or CRLF (the last may lack it);
  // the first line (with skip_bad_lines the first good one) gives d.  Values are decimal numbers as
  // printf's %f and %g or Python's repr write them, a leading + allowed; NaN and infinity, also by
  // overflow, are bad, and so are blanks.  A file without a row is an error.  Errors: "PATH:LINE:
  // ..." (INVALID_ARGUMENT), NOT_FOUND, RESOURCE_EXHAUSTED. Memory while loading: that of the
  // finished table and at most one smaller copy of the index.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> LoadText(
      const std::string& name, const std::string& path, const TableOptions& options);

  // The row of `id`, dim() floats, or nullptr if the table lacks it.
  const float* Find(int64_t id) const {
    const uint32_t row = index_.Find(id);
    return row == KeyIndex::kNone ? nullptr : values() + row * static_cast<size_t>(dim_);
  }
  // Hints the cache lines that Find(id) will touch.
  void Prefetch(int64_t id) const { index_.Prefetch(id); }
  // Hints those of a row that Find returned; nullptr is harmless.
  void PrefetchRow(const float* row) const {
    if (row == nullptr) return;
    for (int64_t i = 0; i < dim_; i += 16) __builtin_prefetch(row + i);
    if (dim_ > 0) __builtin_prefetch(row + dim_ - 1);
  }

  const std::string& name() const { return name_; }
  int64_t dim() const { return dim_; }
  int64_t rows() const { return rows_; }
  // Memory held: index and rows.
  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes() + index_.bytes()); }
  // Bad or duplicate lines left out under skip_bad_lines.
  int64_t skipped_lines() const { return skipped_lines_; }
  MissingKeys missing_keys() const { return missing_keys_; }
  // kDefaultRow: the row to use for an id that is missing; nullptr otherwise.
  const float* missing_row() const { return missing_row_; }

 private:
  friend class TextTableLoader;
  EmbeddingTable() = default;
  const float* values() const { return static_cast<const float*>(memory_.data()); }

  std::string name_;
  int64_t dim_ = 0;
  int64_t rows_ = 0;
  int64_t skipped_lines_ = 0;
  MissingKeys missing_keys_ = MissingKeys::kZero;
  const float* missing_row_ = nullptr;
  PageBuffer memory_;
  KeyIndex index_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_H_
