// inotify behind DirectoryWatcher: every change that the manager cares for wakes it, also after a
// directory was replaced.
// SPDX-License-Identifier: Apache-2.0
#include "server/system/directory_watcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using Reason = DirectoryWatcher::Reason;

// Long enough that a test which waits for it has failed.
constexpr seconds kNever{60};

class DirectoryWatcherTest : public ::testing::Test {
 protected:
  DirectoryWatcherTest() {
    fs::create_directories(dir_.File("m/1"));
    auto watcher = DirectoryWatcher::Create(true);
    EXPECT_TRUE(watcher.ok()) << watcher.status();
    watcher_ = *std::move(watcher);
    Watch();
  }
  void Watch() { watcher_->Watch({dir_.path(), dir_.File("m"), dir_.File("m/1")}); }
  void SetUp() override {
    if (!watcher_->status().ok()) GTEST_SKIP() << watcher_->status();
  }

  TempDir dir_;
  std::unique_ptr<DirectoryWatcher> watcher_;
};

TEST_F(DirectoryWatcherTest, EveryKindOfChangeWakes) {
  const std::pair<const char*, std::function<void()>> changes[] = {
      {"new file", [&] { dir_.Write("m/1/a", "x"); }},
      {"rewritten in place", [&] { dir_.Write("m/1/a", "y"); }},
      {"touched", [&] { utimensat(AT_FDCWD, dir_.File("m/1/a").c_str(), nullptr, 0); }},
      {"renamed over", [&] { fs::rename(dir_.Write("m/1/b", "z"), dir_.File("m/1/a")); }},
      {"removed", [&] { fs::remove(dir_.File("m/1/a")); }},
      {"new version", [&] { fs::create_directory(dir_.File("m/2")); }},
      {"new model", [&] { fs::create_directory(dir_.File("n")); }},
      {"version moved away", [&] { fs::rename(dir_.File("m/2"), dir_.File("n/2")); }},
      {"version moved in", [&] { fs::rename(dir_.File("n/2"), dir_.File("m/2")); }},
      {"model removed", [&] { fs::remove_all(dir_.File("m")); }},
  };
  for (const auto& [what, change] : changes) {
    EXPECT_EQ(watcher_->Wait(milliseconds(0)), Reason::kTimeout) << "before " << what;
    change();
    EXPECT_EQ(watcher_->Wait(kNever), Reason::kChange) << what;
  }
}

TEST_F(DirectoryWatcherTest, FollowsADirectoryThatWasReplaced) {
  fs::create_directory(dir_.File("next"));
  fs::rename(dir_.File("m/1"), dir_.File("old"));
  fs::rename(dir_.File("next"), dir_.File("m/1"));
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kChange);
  Watch();
  EXPECT_EQ(watcher_->watches(), 3);
  while (watcher_->Wait(milliseconds(0)) == Reason::kChange) {  // That the old watch is gone.
  }
  dir_.Write("old/a", "x");
  EXPECT_EQ(watcher_->Wait(milliseconds(0)), Reason::kTimeout);
  dir_.Write("m/1/a", "x");
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kChange);
}

TEST_F(DirectoryWatcherTest, DirectoriesThatDoNotExistAreSkipped) {
  watcher_->Watch({dir_.path(), dir_.File("none"), dir_.Write("file", "")});
  EXPECT_TRUE(watcher_->status().ok()) << watcher_->status();
  EXPECT_EQ(watcher_->watches(), 1);
}

TEST_F(DirectoryWatcherTest, ABurstIsOneChange) {
  for (int i = 0; i < 100; ++i) dir_.Write(absl::StrCat("m/1/", i), "x");
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kChange);
  EXPECT_EQ(watcher_->Wait(milliseconds(0)), Reason::kTimeout);
}

TEST_F(DirectoryWatcherTest, EndlessChangesDoNotHoldItBack) {
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) dir_.Write("m/1/a", "x");
  });
  const auto start = steady_clock::now();
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kChange);
  EXPECT_LT(steady_clock::now() - start, kNever / 2);
  stop = true;
  writer.join();
}

TEST_F(DirectoryWatcherTest, WakesFromAnotherThreadAndAheadOfTime) {
  watcher_->Wake();
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kWoken);
  std::thread waker([&] { watcher_->Wake(); });
  EXPECT_EQ(watcher_->Wait(kNever), Reason::kWoken);
  waker.join();
}

TEST_F(DirectoryWatcherTest, WithoutInotifyItIsAClock) {
  auto watcher = DirectoryWatcher::Create(false);
  ASSERT_TRUE(watcher.ok()) << watcher.status();
  (*watcher)->Watch({dir_.path()});
  dir_.Write("a", "x");
  EXPECT_EQ((*watcher)->Wait(milliseconds(1)), Reason::kTimeout);
  (*watcher)->Wake();
  EXPECT_EQ((*watcher)->Wait(kNever), Reason::kWoken);
  EXPECT_EQ((*watcher)->watches(), 0);
}

TEST_F(DirectoryWatcherTest, RefusedInstanceFallsBackToPolling) {
  // inotify_init fails like this also when fs.inotify.max_user_instances is reached.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  ASSERT_GE(next, 0);
  close(next);
  const rlimit one_more = {.rlim_cur = static_cast<rlim_t>(next + 1), .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  auto watcher = DirectoryWatcher::Create(true);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(watcher.ok()) << watcher.status();
  EXPECT_FALSE((*watcher)->status().ok());
  (*watcher)->Watch({dir_.path()});
  EXPECT_FALSE((*watcher)->status().ok());
  EXPECT_EQ((*watcher)->Wait(milliseconds(1)), Reason::kTimeout);
}

}  // namespace
}  // namespace ulfd::server
