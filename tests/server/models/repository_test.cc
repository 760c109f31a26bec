// Listing the model repository.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/model_version.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

TEST(RepositoryTest, VersionsArePositiveWholeNumbersWrittenOneWay) {
  EXPECT_EQ(ParseVersion("1"), 1);
  EXPECT_EQ(ParseVersion("20260301"), 20260301);
  EXPECT_EQ(ParseVersion("9223372036854775807"), INT64_MAX);
  for (const char* name : {"", "0", "00", "01", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "v1",
                           "9223372036854775808"}) {
    EXPECT_EQ(ParseVersion(name), std::nullopt) << name;
  }
}

TEST(RepositoryTest, ListsModelsWithoutHiddenOnesAndFiles) {
  TempDir dir;
  for (const char* name : {"rank", "din", ".git", "lost+found", "7", "a\nb", "c\xff"}) {
    fs::create_directory(dir.File(name));
  }
  dir.Write("README", "x");
  fs::create_directory_symlink(dir.File("din"), dir.File("alias"));
  fs::create_symlink(dir.File("nothing"), dir.File("dangling"));
  const auto names = ListModelDirectories(dir.path());
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names, ElementsAre("7", "alias", "din", "rank"));
}

TEST(RepositoryTest, ListsVersionsByNumber) {
  TempDir dir;
  for (const char* name : {"10", "9", "02", "tmp"}) fs::create_directory(dir.File(name));
  dir.Write("3", "a file");
  fs::create_directory_symlink(dir.File("9"), dir.File("11"));
  const auto list = ListVersions(dir.path());
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_THAT(list->versions, ElementsAre(9, 10, 11));
  EXPECT_THAT(list->ignored, ElementsAre("02", "3", "tmp"));
}

TEST(RepositoryTest, MissingDirectoryIsNotFound) {
  TempDir dir;
  EXPECT_EQ(ListVersions(dir.File("none")).status().ToString(),
            absl::StrCat("NOT_FOUND: directory ", dir.File("none"), " does not exist"));
  EXPECT_TRUE(absl::IsNotFound(ListModelDirectories(dir.Write("file", "")).status()));
}

}  // namespace
}  // namespace ulfd::server
