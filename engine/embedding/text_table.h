// The reader of XDL text tables.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_TEXT_TABLE_H_
#define ULFD_ENGINE_EMBEDDING_TEXT_TABLE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ulfd::engine {

// Takes rows one after the other.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // Before the first row of a source: values of each of its rows, and about how many there are.
  virtual absl::Status Begin(int64_t dim, int64_t about_rows) = 0;
  // Room for the dim floats of the row that Commit adds; until then calls give the same place.
  virtual absl::StatusOr<float*> NextRow() = 0;
  virtual absl::Status Commit(int64_t id) = 0;
};

struct TextTableOptions {
  bool skip_bad_lines = false;
  // As other programs write tables: the first line may name columns instead (it does not begin as a
  // number does), and blanks and quotes may stand around numbers.
  bool csv = false;
};

// Gives every row of a text table to `sink`; what a table may hold, and errors: see
// EmbeddingTable::LoadText.  Returns the number of bad lines left out.
absl::StatusOr<int64_t> ReadTextTable(const std::string& path, const TextTableOptions& options,
                                      RowSink& sink);

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_TEXT_TABLE_H_
