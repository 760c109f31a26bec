// SPDX-License-Identifier: Apache-2.0
#include "base/new_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/text_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ulfd {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class NewFileTest : public ::testing::Test {
 protected:
  NewFileTest() {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  std::string At(const std::string& name) const { return directory_ / name; }
  static std::string ContentOf(const std::string& path) {
    std::ostringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
  }
  static absl::Status Put(const std::string& path, const std::string& text) {
    absl::StatusOr<NewFile> file = NewFile::Create(path);
    if (!file.ok()) return file.status();
    if (absl::Status written = file->Write(text); !written.ok()) return written;
    return file->Commit();
  }
  int64_t Files() const {
    return std::distance(fs::directory_iterator(directory_), fs::directory_iterator());
  }

  const fs::path directory_ = fs::path(::testing::TempDir()) / "new_file_test";
};

TEST_F(NewFileTest, TakesItsPlaceAtOnce) {
  ASSERT_TRUE(Put(At("f"), "old").ok());
  std::ifstream reader(At("f"));
  {
    absl::StatusOr<NewFile> file = NewFile::Create(At("f"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write(std::string(100'000, 'n')).ok());
    EXPECT_EQ(ContentOf(At("f")), "old");
    ASSERT_TRUE(file->Commit().ok());
  }
  EXPECT_EQ(ContentOf(At("f")), std::string(100'000, 'n'));
  std::string before;
  EXPECT_TRUE(reader >> before);
  EXPECT_EQ(before, "old");
  EXPECT_EQ(Files(), 1);
}

TEST_F(NewFileTest, LeavesNothingWithoutACommit) {
  {
    absl::StatusOr<NewFile> file = NewFile::Create(At("f"));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->Write("x").ok());
  }
  EXPECT_EQ(Files(), 0);
}

TEST_F(NewFileTest, IsForWhomTheOldOneWas) {
  const auto mode_of = [&](const char* name) {
    return fs::status(At(name)).permissions() & fs::perms::all;
  };
  const mode_t before = umask(027);
  ASSERT_TRUE(Put(At("f"), "old").ok());
  umask(before);
  EXPECT_EQ(mode_of("f"), fs::perms(0640));
  fs::permissions(At("f"), fs::perms(0600));
  ASSERT_TRUE(Put(At("f"), "new").ok());
  EXPECT_EQ(mode_of("f"), fs::perms(0600));
}

TEST_F(NewFileTest, ReplacesWhatALinkLeadsTo) {
  ASSERT_TRUE(Put(At("f"), "old").ok());
  fs::create_symlink("f", At("link"));
  ASSERT_TRUE(Put(At("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(At("link")));
  EXPECT_EQ(ContentOf(At("f")), "new");
}

TEST_F(NewFileTest, SaysWhyItCannotBeWritten) {
  EXPECT_THAT(std::string(Put(At("none/f"), "x").message()), HasSubstr("No such file"));
  EXPECT_THAT(std::string(Put(directory_, "x").message()), HasSubstr("Is a directory"));
  EXPECT_EQ(Put("/dev/full", "x").message(), "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  ASSERT_EQ(mkfifo(At("fifo").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Put(At("fifo"), "x").message()), HasSubstr("No such device"));
  fs::remove(At("fifo"));
  EXPECT_EQ(Files(), 0);
}

TEST_F(NewFileTest, OfAFileSoMuchIsRead) {
  ASSERT_TRUE(Put(At("some"), "0123456789").ok());
  EXPECT_EQ(ReadFileOrPipe(At("some"), 10).value_or(""), "0123456789");
  EXPECT_EQ(ReadFileOrPipe(At("some"), 9).status().message(),
            At("some") + ": more bytes than 9, which is the most");
  EXPECT_EQ(ReadFileOrPipe("/dev/zero", 1 << 20).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ulfd
