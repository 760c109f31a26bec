// Listing the model repository.
// SPDX-License-Identifier: Apache-2.0
#include "server/models/repository.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/model_version.h"
#include "tests/testing/temp_dir.h"

// A file system that fails: stat and opendir of the test's own stand before the system's.
static std::string broken;  // At this path and below; "": nowhere.
static int broken_by = 0;
static bool IsBroken(const std::string& path) {
  if (broken.empty() || path.compare(0, broken.size(), broken) != 0) return false;
  errno = broken_by;
  return true;
}
extern "C" int stat(const char* path, struct stat* info) {
  return IsBroken(path) ? -1 : fstatat(AT_FDCWD, path, info, 0);
}
extern "C" DIR* opendir(const char* path) {
  static const auto open = reinterpret_cast<decltype(&opendir)>(dlsym(RTLD_NEXT, "opendir"));
  return IsBroken(path) ? nullptr : open(path);
}

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

TEST(RepositoryTest, ALookReadsABoundedNumberOfNamesTheNewestVersionsFirst) {
  constexpr int kFiles = 10000;
  TempDir dir;
  fs::create_directories(dir.File("many/files"));
  fs::create_directories(dir.File("usual/1"));
  dir.Write("usual/1/graph_ulf.txt", "x");
  for (int i = 0; i < kFiles; ++i) dir.Write(absl::StrCat("many/files/", i), "");
  for (int v = 1; v <= 12; ++v) {
    fs::create_directory_symlink("files", dir.File(absl::StrCat("many/", v)));
  }
  const VersionRules rules(dir.path(), {}, kFiles);
  const RepositoryScan scan = RepositoryScanner(dir.path(), rules).Scan({});
  ASSERT_EQ(scan.models.size(), 2);
  EXPECT_TRUE(scan.models.at("usual").versions.at(1).ok());
  const RepositoryScan one = RepositoryScanner(dir.path(), rules).Scan({}, "usual");
  EXPECT_THAT(one.found, ElementsAre("many", "usual"));
  EXPECT_EQ(one.models.size(), 1);
  EXPECT_TRUE(one.models.at("usual").versions.at(1).ok());
  const ModelScan& many = scan.models.at("many");
  ASSERT_EQ(many.versions.size(), 12);
  // The model's own names count, too.
  EXPECT_TRUE(many.versions.at(4).ok());
  EXPECT_EQ(many.versions.at(3).status().ToString(),
            absl::StrCat("UNAVAILABLE: ", dir.File("many/3"),
                         "/: not read, there are more names than a look may read (of a model 10, "
                         "of all 100 times load.max_files)"));
  EXPECT_TRUE(absl::IsUnavailable(many.versions.at(1).status()));
}

TEST(RepositoryTest, AsksForTheNewestVersionsAndNamedOnes) {
  TempDir dir;
  for (int v = 1; v <= 1100; ++v) fs::create_directory(dir.File(absl::StrCat(v)));
  dir.Write("2000", "no directory");
  const auto list = ListVersions(dir.path(), {7, 1099, 5000});
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->versions.size(), 1001);
  EXPECT_EQ(list->versions[0], 7);
  EXPECT_EQ(list->versions[1], 101);
  EXPECT_EQ(list->versions.back(), 1100);
  EXPECT_EQ(list->left_out, 99);
  EXPECT_THAT(list->ignored, ElementsAre("2000"));
}

TEST(RepositoryTest, KeepsTheFirstNamesOfWhatIsNoVersion) {
  TempDir dir;
  for (int i = 10; i < 50; ++i) dir.Write(absl::StrCat("f", i), "");
  const auto list = ListVersions(dir.path());
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->ignored.size(), 20);
  EXPECT_EQ(list->ignored.back(), "f29");
  EXPECT_TRUE(list->ignored_more);
}

// What is not there is unloaded, or an older version takes its place.  A file system that went away
// (FUSE: ENOTCONN), or its device, is no such wish.
TEST(RepositoryTest, AFileSystemThatFailsSaysNothingOfWhatItHolds) {
  TempDir dir;
  for (const char* name : {"a/1", "a/2"}) fs::create_directories(dir.File(name));
  const VersionRules rules(dir.path(), {}, 100);
  const RepositoryScanner scanner(dir.path(), rules);
  for (const int error : {ENOTCONN, ENODEV, ENXIO, EBUSY, EIO, ESTALE, ENOSPC}) {
    broken_by = error;
    const auto look = [&](const std::string& path) {
      broken = path;
      const RepositoryScan scan = scanner.Scan({{"a", {.base_path = dir.File("a")}}});
      broken = "";
      return scan;
    };
    EXPECT_TRUE(absl::IsUnavailable(look(dir.path()).repository)) << error;
    EXPECT_TRUE(absl::IsUnavailable(look(dir.path()).models.at("a").listing.status())) << error;
    const RepositoryScan model = look(dir.File("a"));
    EXPECT_THAT(model.found, ElementsAre("a")) << error;
    EXPECT_TRUE(absl::IsUnavailable(model.models.at("a").listing.status())) << error;
    const ModelScan version = look(dir.File("a/2")).models.at("a");
    EXPECT_TRUE(version.versions.at(1).ok()) << error;
    ASSERT_TRUE(version.versions.contains(2)) << error;
    EXPECT_TRUE(absl::IsUnavailable(version.versions.at(2).status())) << error;
  }
}

TEST(RepositoryTest, MissingDirectoryIsNotFound) {
  TempDir dir;
  EXPECT_EQ(ListVersions(dir.File("none")).status().ToString(),
            absl::StrCat("NOT_FOUND: directory ", dir.File("none"), " does not exist"));
  EXPECT_TRUE(absl::IsNotFound(ListModelDirectories(dir.Write("file", "")).status()));
}

}  // namespace
}  // namespace ulfd::server
