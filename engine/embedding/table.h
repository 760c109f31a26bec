// An embedding table in memory: int64 ids -> rows of floats.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TABLE_H_
#define ULFD_ENGINE_EMBEDDING_TABLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ulfd::engine {

enum class MissingKeys : uint8_t { kZero, kDefaultRow, kError };

struct TableOptions {
  MissingKeys missing_keys = MissingKeys::kZero;
  int64_t default_id = 0;       // kDefaultRow: the id whose row stands in.
  bool skip_bad_lines = false;  // false: a bad line or duplicate id fails the load with file:line.
};

// Immutable after Load; any thread may read.
class EmbeddingTable {
 public:
  // Reads an XDL text table: lines "id,v0,...,v(d-1)"; the first line gives d.
  static absl::StatusOr<std::unique_ptr<const EmbeddingTable>> LoadText(
      const std::string& name, const std::string& path, const TableOptions& options);

  // The row of `id`, dim() floats, or nullptr if the table lacks it.
  const float* Find(int64_t id) const;
  // Hints the cache lines that Find(id) will touch.
  void Prefetch(int64_t id) const;

  const std::string& name() const { return name_; }
  int64_t dim() const { return dim_; }
  int64_t rows() const { return rows_; }
  // Memory held: index and rows.
  int64_t bytes() const;
  // Bad or duplicate lines left out under skip_bad_lines.
  int64_t skipped_lines() const { return skipped_lines_; }
  MissingKeys missing_keys() const { return missing_keys_; }
  // kDefaultRow: the row to use for an id that is missing; nullptr otherwise.
  const float* missing_row() const { return missing_row_; }

 private:
  EmbeddingTable() = default;
  std::string name_;
  int64_t dim_ = 0;
  int64_t rows_ = 0;
  int64_t skipped_lines_ = 0;
  MissingKeys missing_keys_ = MissingKeys::kZero;
  const float* missing_row_ = nullptr;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TABLE_H_
