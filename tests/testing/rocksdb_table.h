// Tables in RocksDB, for tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_ROCKSDB_TABLE_H_
#define ULFD_TESTS_TESTING_ROCKSDB_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/stores/rocksdb_store.h"

namespace ulfd::testing {

// Gives a table of a version its rows in RocksDB, and its part of the manifest, with `more` in it.
// UNIMPLEMENTED in builds without RocksDB.
inline absl::Status MoveIntoRocksdb(const std::string& version_directory, const std::string& table,
                                    const std::map<int64_t, std::vector<float>>& content,
                                    const std::string& more = "") {
  const std::string path = absl::StrCat(version_directory, "/", table);
  std::filesystem::remove(path);
  engine::RowSorter rows(path + ".rows", {});
  for (const auto& [id, row] : content) {
    RETURN_IF_ERROR(rows.Begin(static_cast<int64_t>(row.size()), 0));
    std::copy(row.begin(), row.end(), *rows.NextRow());
    RETURN_IF_ERROR(rows.Commit(id));
  }
  std::ofstream(version_directory + "/model.textproto", std::ios::app)
      << "tables { name: \"" << table << "\" store { rocksdb: \"" << table << ".db\" } " << more
      << "}\n";
  return engine::WriteRocksdb(path + ".db", rows, nullptr).status();
}

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_ROCKSDB_TABLE_H_
