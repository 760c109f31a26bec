// What a store of rows - RocksDB, Redis - is to the engine.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_EMBEDDING_ROW_STORE_H_
#define ULFD_ENGINE_EMBEDDING_ROW_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/embedding/row_format.h"
#include "engine/embedding/row_set.h"

namespace ulfd::engine {

using TimePoint = std::chrono::steady_clock::time_point;

// What a store says of a table.
struct StoredTableInfo {
  int64_t rows = 0;
  int64_t dim = 0;
  RowFormat format = RowFormat::kFp32;
  std::string digest;    // Tells contents apart.
  std::string mean_row;  // In the format of the rows.
  size_t row_bytes() const { return RowBytes(format, dim); }
};

class RowStore;

// Rows to read of one store: those of `rows` that `wanted` names by index.
struct RowRead {
  const RowStore* store = nullptr;
  RowSet* rows = nullptr;
  std::vector<size_t> wanted;
  // Why rows are late that are late; OK where time alone was short.
  absl::Status status;
};

// The rows of one table in a store.  Thread-safe.
class RowStore {
 public:
  virtual ~RowStore() = default;
  virtual const StoredTableInfo& table() const = 0;
  // Stores of one backend are read together, by one of them: equal for such.
  virtual const void* backend() const { return this; }
  // Brings what is wanted: sets kPresent and writes the row, or sets kMissing, or leaves kLate.
  // Blocks, but not for long beyond `deadline`.  Errors go into each RowRead; they name the store,
  // and key or node.
  virtual void Read(absl::Span<RowRead* const> reads, TimePoint deadline) const = 0;
  // Memory that it holds or may come to hold.
  virtual int64_t bytes() const = 0;
  // Reads that were sent twice because the first took long.
  virtual int64_t hedges() const { return 0; }
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_EMBEDDING_ROW_STORE_H_
