// A directory for one test, removed with everything in it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_TESTING_TEMP_DIR_H_
#define ULFD_TESTS_TESTING_TEMP_DIR_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ulfd {

class TempDir {
 public:
  // In memory where possible: tests of damaged files write thousands of them.
  TempDir() {
    const bool memory = access("/dev/shm", W_OK) == 0;
    std::string name = absl::StrCat(memory ? "/dev/shm/" : ::testing::TempDir(), "ulfd_XXXXXX");
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const { return absl::StrCat(path_, "/", name); }
  // Writes a file, and makes the folders that it is in; returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const {
    const std::filesystem::path path = File(name);
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    EXPECT_TRUE(file << content << std::flush) << "cannot write " << path;
    return path;
  }

 private:
  std::string path_;
};

}  // namespace ulfd

#endif  // ULFD_TESTS_TESTING_TEMP_DIR_H_
