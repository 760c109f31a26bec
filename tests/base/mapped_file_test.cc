// Files that are not mapped: more than the address space has for all.  Files that are cut.
// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace ulfd
