// Deltas of tables on disk, for tests.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_DELTA_FILES_H_
#define ULFD_TESTS_TESTING_DELTA_FILES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/directory/delta_directory.h"
#include "engine/embedding/table_file_writer.h"

namespace ulfd::testing {

using TableContent = std::map<int64_t, std::vector<float>>;  // Id -> row.

inline void WriteTableFile(const std::string& path, const TableContent& rows,
                           engine::RowFormat format = engine::RowFormat::kFp32) {
  engine::TableFileWriter writer(path, {.format = format});
  ASSERT_TRUE(writer.Begin(static_cast<int64_t>(rows.begin()->second.size()), 0).ok());
  for (const auto& [id, row] : rows) {
    std::copy(row.begin(), row.end(), *writer.NextRow());
    ASSERT_TRUE(writer.Commit(id).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

// Writes deltas/EPOCH of a version directory: delta.textproto with this text, and these files.
inline void WriteDelta(const std::string& version_directory, int64_t epoch,
                       const std::string& manifest, const std::map<std::string, TableContent>& put,
                       const std::map<std::string, std::string>& files = {}) {
  const std::string directory = engine::EpochDirectory(version_directory, epoch);
  std::filesystem::create_directories(directory);
  for (const auto& [name, rows] : put) WriteTableFile(absl::StrCat(directory, "/", name), rows);
  for (const auto& [name, text] : files) {
    std::ofstream(absl::StrCat(directory, "/", name), std::ios::binary) << text;
  }
  std::ofstream(absl::StrCat(directory, "/", engine::kDeltaFile)) << manifest;
  std::ofstream(absl::StrCat(directory, "/", engine::kSuccessFile));
}

// What every manifest says.
inline std::string DeltaHead(int64_t base_epoch, int64_t seconds) {
  return absl::StrCat("base_epoch: ", base_epoch, " event_time { seconds: ", seconds, " }\n");
}

}  // namespace ulfd::testing

#endif  // ULFD_TESTS_TESTING_DELTA_FILES_H_
