// Version directories made against the daemon: each is refused with a reason, costs no more than a
// load may, and leaves alone what serves.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/text.h"
#include "tests/testing/stepped_manager.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kGood[] =
    "layer_params { type: \"input_layer\" top: \"x\" } "
    "layer_params { name: \"r\" type: \"relu_layer\" bottom: \"x\" top: \"y\" }";

// With real models: version 1 of "m" is good, and serves.
class HostileModelsTest : public SteppedManagerTest {
 protected:
  HostileModelsTest() {
    options_.load = nullptr;
    Write(1, "graph_ulf.txt", kGood);
    Write(1, "_SUCCESS", "");
  }
  void Write(int64_t version, const std::string& file, const std::string& content) {
    repository_.Write("m", version, file, content);
  }
  void Start() {
    EXPECT_THAT(Poll(), ElementsAre("published m v1"));
    EXPECT_EQ(Serving(), "v1 generation 1");
  }
  // Completes version `next_`, lets it be tried, and returns the error.  Version 1 goes on.
  std::string Refusal(const std::string& reason) {
    Write(next_, "_SUCCESS", "");
    EXPECT_THAT(Poll(), ElementsAre(absl::StrCat("failed m v", next_, " ", reason)));
    EXPECT_THAT(PollAfter(hours(2)), IsEmpty()) << "tried again";
    EXPECT_EQ(Serving(), "v1 generation 1");
    const VersionStatus refused = Version(next_++);
    EXPECT_EQ(refused.state, VersionState::kFailed);
    EXPECT_LT(refused.error.size(), 6000u);
    EXPECT_TRUE(IsUtf8(refused.error));
    return refused.error;
  }
  std::string Path(const std::string& file) const {
    return absl::StrCat(repository_.Path("m", next_), "/", file);
  }
  void Link(const std::string& to, const std::string& file) {
    fs::create_directories(repository_.Path("m", next_));
    fs::create_symlink(to, Path(file));
  }
  TempDir outside_;
  int64_t next_ = 2;
};

TEST_F(HostileModelsTest, AGraphBehindALinkOutOfTheRepositoryIsNotRead) {
  Start();
  Link(outside_.Write("passwd", "root:x:0:0"), "graph_ulf.txt");
  const std::string error = Refusal("parse");
  EXPECT_THAT(error, HasSubstr("graph_ulf.txt: leads out of"));
  EXPECT_THAT(error, Not(HasSubstr("root")));
}

TEST_F(HostileModelsTest, NeitherIsAnyOtherFile) {
  Start();
  Write(2, "graph_ulf.txt", kGood);
  Link(outside_.Write("weights", "root:x:0:0"), "weights.pb");
  EXPECT_THAT(Refusal("weights"), HasSubstr("weights.pb: leads out of"));
  Write(next_, "graph_ulf.txt", kGood);
  Link(outside_.Write("manifest", "root: 0"), "model.textproto");
  EXPECT_THAT(Refusal("manifest"), HasSubstr("model.textproto: leads out of"));
}

TEST_F(HostileModelsTest, LinksWithinTheRepositoryAndNamedTargetsAreFollowed) {
  fs::create_directories(repository_.path() + "/m/blobs");
  std::ofstream(repository_.path() + "/m/blobs/graph") << kGood;
  Start();
  Link("../blobs/graph", "graph_ulf.txt");
  Write(2, "_SUCCESS", "");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
  // Kubernetes: files are links to a directory that a link names.
  fs::create_directories(repository_.Path("m", 3) + "/..2026_11");
  std::ofstream(repository_.Path("m", 3) + "/..2026_11/graph_ulf.txt") << kGood;
  fs::create_directory_symlink("..2026_11", repository_.Path("m", 3) + "/..data");
  fs::create_symlink("..data/graph_ulf.txt", repository_.Path("m", 3) + "/graph_ulf.txt");
  Write(3, "_SUCCESS", "");
  EXPECT_THAT(Poll(), ElementsAre("published m v3"));
  // A version that is a link: its name is the operator's.
  outside_.Write("graph_ulf.txt", kGood);
  outside_.Write("_SUCCESS", "");
  fs::create_directory_symlink(outside_.path(), repository_.Path("m", 4));
  EXPECT_THAT(Poll(), ElementsAre("published m v4"));
}

TEST_F(HostileModelsTest, LinkTargetsAreTheOperatorsChoice) {
  options_.link_targets = {outside_.path()};
  Start();
  Link(outside_.Write("graph", kGood), "graph_ulf.txt");
  Write(2, "_SUCCESS", "");
  EXPECT_THAT(Poll(), ElementsAre("published m v2"));
}

TEST_F(HostileModelsTest, FifosAndDirectoriesInPlaceOfFiles) {
  Start();
  Write(2, "model.textproto", "graph: \"g\"");
  ASSERT_EQ(mkfifo(Path("g").c_str(), 0600), 0);
  EXPECT_THAT(Refusal("content"), HasSubstr("is not a regular file"));
}

// What is refused for another reason is not read to the end to know it again.
TEST_F(HostileModelsTest, ClaimsOfASparseFileAreNotRead) {
  options_.load_bounds.max_time = std::chrono::minutes(10);
  Start();
  Write(2, "graph_ulf.txt", "no graph");
  Write(2, "dense.npz", "");
  fs::resize_file(Path("dense.npz"), uintmax_t{1} << 42);
  EXPECT_THAT(Refusal("parse"), HasSubstr("graph_ulf.txt:1:"));
}

TEST_F(HostileModelsTest, TreesWithoutEnd) {
  options_.load_bounds.max_files = 100;
  Start();
  Write(2, "graph_ulf.txt", kGood);
  fs::create_directory_symlink("/", Path("world"));
  for (int i = 0; i < 200; ++i) Write(2, absl::StrCat("f", i), "");
  EXPECT_THAT(Refusal("content"), HasSubstr("holds more than 100 files"));
}

TEST_F(HostileModelsTest, MemoryOfALoadIsBounded) {
  options_.load_bounds.max_memory_bytes = 8 << 20;
  Start();
  Write(2, "graph_ulf.txt", kGood);
  Write(2, "weights.pb", "");
  ASSERT_EQ(truncate(Path("weights.pb").c_str(), 64 << 20), 0);
  const std::string error = Refusal("memory");
  EXPECT_THAT(error, HasSubstr("it may hold 8388608 at a time (load.max_memory_bytes)"));
  // Better content is loaded.
  fs::remove(repository_.Path("m", 2) + "/weights.pb");
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
  EXPECT_THAT(PollAfter(hours(2)), ElementsAre("published m v2"));
}

TEST_F(HostileModelsTest, TimeOfALoadIsBounded) {
  Start();
  manager_.reset();
  observer_.TakeEvents();
  options_.load_bounds.max_time = milliseconds(0);
  fs::remove_all(repository_.Path("m", 1));
  Write(2, "graph_ulf.txt", kGood);
  Write(2, "_SUCCESS", "");
  Create();
  EXPECT_THAT(Poll(), ElementsAre("failed m v2 time"));
  EXPECT_THAT(Version(2).error, HasSubstr("longer than load.max_time_ms allows"));
  EXPECT_THAT(PollAfter(hours(2)), IsEmpty());
}

TEST_F(HostileModelsTest, NamesAreNotRepeatedInFull) {
  Start();
  const std::string name(20 << 20, 'n');
  Write(2, "graph_ulf.txt",
        absl::StrCat(kGood, " layer_params { name: \"", name, "\" type: \"t\" }"));
  EXPECT_THAT(Refusal("parse"), HasSubstr("name or type of 20971520 bytes, want at most 1024"));
  // Nor do they forge lines of a log or move a terminal's cursor.
  Write(next_, "graph_ulf.txt",
        absl::StrCat(kGood, " layer_params { name: \"a\\nb\\033[2J\" type: \"t\" }"));
  const std::string error = Refusal("parse");
  EXPECT_THAT(error, HasSubstr("\"a\\nb\\x1b[2J\" holds control characters"));
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace ulfd::server
