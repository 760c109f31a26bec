// What a store says of a table, as bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_ENGINE_STORES_STORED_TABLE_H_
#define ULFD_ENGINE_STORES_STORED_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/embedding/row_sorter.h"
#include "engine/embedding/row_store.h"
#include "proto/stored_table.pb.h"

namespace ulfd::engine {

inline constexpr uint32_t kStoredTableVersion = 1;

// Of the sorter's rows; the digest is left out.
ulfd::store::v1::StoredTable DescribeRows(const RowSorter& sorter, const RowReport& report);

// INVALID_ARGUMENT for another version, DATA_LOSS for what cannot be; the text begins with what was
// found, and names no store.
absl::StatusOr<ulfd::store::v1::StoredTable> ParseStoredTable(absl::string_view bytes);
// Of what ParseStoredTable passed.
StoredTableInfo InfoOf(const ulfd::store::v1::StoredTable& table);

// XXH3-128 over rows in the order of their hashes.
class RowDigest {
 public:
  RowDigest();
  ~RowDigest();
  RowDigest(const RowDigest&) = delete;
  RowDigest& operator=(const RowDigest&) = delete;
  void Add(absl::string_view record);
  std::string Get() const;  // 16 bytes.

 private:
  void* state_;
};

}  // namespace ulfd::engine

#endif  // ULFD_ENGINE_STORES_STORED_TABLE_H_
