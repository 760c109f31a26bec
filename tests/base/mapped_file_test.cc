// Files that are not mapped: more than the address space has for all.  Files that are cut.
// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/temp_dir.h"

namespace ulfd {
namespace {

absl::StatusOr<std::unique_ptr<const MappedFile>> MapPath(const std::string& path) {
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  return file.ok() ? MappedFile::Map(*file) : file.status();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // These take terabytes.
TEST(MappedFileTest, AllFilesTogetherTakeAQuarterOfTheAddressSpace) {
  TempDir dir;
  const std::string path = dir.Write("table", std::string(16 << 20, 'x'));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = rlim_t{4} << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const absl::Cleanup restore = [&] { setrlimit(RLIMIT_AS, &before); };
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != rlim_t{4} << 30) {
    GTEST_SKIP() << "an emulator, which takes no limit of the address space";
  }
  std::vector<std::unique_ptr<const MappedFile>> files;
  for (int i = 0; i < 64; ++i) {
    auto mapped = MapPath(path);
    ASSERT_TRUE(mapped.ok()) << i << ": " << mapped.status();
    files.push_back(*std::move(mapped));
  }
  EXPECT_EQ(MapPath(path).status().ToString(),
            absl::StrCat("RESOURCE_EXHAUSTED: ", path,
                         ": 16777216 bytes beside 1073741824 of other mapped files, want at most "
                         "1073741824 in all, a quarter of the address space"));
  files.pop_back();
  EXPECT_TRUE(MapPath(path).ok());
}
#endif

// Of a page that a file still begins, the kernel gives zeros for what was cut off.
TEST(MappedFileTest, SaysThatAFileIsCutWhereAReaderDoesNotNotice) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t left : {page + 1, 2 * page - 1}) {
    TempDir dir;
    const std::string path = dir.Write("table", std::string(2 * page + 100, 'x'));
    const auto mapped = MapPath(path);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    EXPECT_TRUE((*mapped)->Check().ok());
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(left)), 0);
    EXPECT_EQ((*mapped)->data()[left], 0);
    EXPECT_EQ((*mapped)->Check().ToString(),
              absl::StrCat("DATA_LOSS: ", path, ": byte ", 2 * page + 99,
                           " cannot be read: the file was cut or its disk fails"));
  }
}

TEST(MappedFileTest, DamageMattersToWhoReadsIt) {
  TempDir dir;
  const std::string path = dir.Write("table", std::string(10000, 'x'));
  const auto mapped = MapPath(path);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  const MappedFile& file = **mapped;
  file.MarkDamaged(3000, 4000);
  EXPECT_EQ(file.Check().ToString(),
            absl::StrCat("DATA_LOSS: ", path, ": bytes 3000 to 4000 are damaged"));
  EXPECT_TRUE(file.CheckRead(file.data() + 2000, 1000).ok());
  EXPECT_TRUE(file.CheckRead(file.data() + 4000, 1000).ok());
  EXPECT_FALSE(file.CheckRead(file.data() + 2001, 1000).ok());
  EXPECT_FALSE(file.CheckRead(file.data() + 3999, 1000).ok());
  file.MarkDamaged(6000, 7000);
  EXPECT_FALSE(file.CheckRead(file.data() + 5000, 1).ok());
  EXPECT_TRUE(file.CheckRead(file.data() + 7000, 1).ok());
}

// As the mapping does, whatever is renamed over its name.
TEST(MappedFileTest, ReadsTheFileThatIsMapped) {
  TempDir dir;
  const std::string path = dir.Write("table", "abcdef");
  const auto mapped = MapPath(path);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  ASSERT_EQ(rename(dir.Write("other", "ghijkl").c_str(), path.c_str()), 0);
  char read[8];
  const auto got = (*mapped)->file().ReadAt(2, read, sizeof read);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(std::string(read, *got), "cdef");
}

}  // namespace
}  // namespace ulfd
