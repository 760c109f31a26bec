// The recorder: its share, its bounds, its files, and a disk that is full.
// SPDX-License-Identifier: Apache-2.0
#include "server/recorder/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "base/recording/recording_file.h"
#include "base/recording/recording_reader.h"
#include "tests/testing/fakes.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::server {
namespace {

using recording::v1::Recording;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Recording Call(const std::string& model, int64_t version, size_t bytes = 1000,
               int64_t duration_us = 0) {
  Recording record;
  record.set_model(model);
  record.set_version(version);
  record.set_duration_us(duration_us);
  record.set_request(std::string(bytes, 'x'));
  return record;
}

class RecorderTest : public testing::Test {
 protected:
  RecorderOptions Options() const {
    RecorderOptions options;
    options.directory = dir_.File("recordings");
    options.share = 1;
    options.max_per_second = 100000;
    options.max_file_bytes = options.max_queued_bytes = 16 << 20;
    options.max_files = 4;
    options.retry_interval = std::chrono::seconds(30);
    return options;
  }
  std::unique_ptr<Recorder> Make(const RecorderOptions& options) {
    auto recorder = Recorder::CreateWithoutThread(
        options, clock_, [this](const absl::Status& status, int64_t lost) {
          changes_.emplace_back(status.ok() ? "OK" : std::string(status.message()), lost);
        });
    EXPECT_TRUE(recorder.ok()) << recorder.status();
    return *std::move(recorder);
  }
  std::vector<int64_t> Versions(const std::string& model) const {
    std::vector<int64_t> versions;
    const auto files = recording::ListFiles(dir_.File("recordings/" + model));
    EXPECT_TRUE(files.ok()) << files.status();
    for (const recording::RecordingPath& file : *files) {
      auto reader = recording::RecordingReader::Open(file.path);
      EXPECT_TRUE(reader.ok()) << reader.status();
      for (Recording record; *reader->Next(&record);) versions.push_back(record.version());
    }
    return versions;
  }
  int64_t DiskBytes() const {
    int64_t bytes = 0;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(dir_.File("recordings"))) {
      if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
    }
    return bytes;
  }

  const TempDir dir_;
  FakeClock clock_;
  std::vector<std::pair<std::string, int64_t>> changes_;
};

TEST_F(RecorderTest, what_is_added_is_on_disk_by_model) {
  const auto recorder = Make(Options());
  recorder->Add(Call("a", 1));
  recorder->Add(Call("b", 2));
  recorder->Add(Call("a", 3));
  EXPECT_GT(recorder->Stats().queued_bytes, 3000);
  EXPECT_THAT(Versions("a"), IsEmpty());
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(1, 3));
  EXPECT_THAT(Versions("b"), ElementsAre(2));
  const RecorderStats stats = recorder->Stats();
  EXPECT_EQ(stats.records, 3);
  EXPECT_EQ(stats.queued_bytes, 0);
  EXPECT_EQ(stats.bytes + 2 * 8, DiskBytes());
}

TEST_F(RecorderTest, models_that_come_and_go_leave_no_file_open) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  const auto recorder = Make(Options());
  for (int i = 0; i < 600; ++i) {
    recorder->Add(Call("m" + std::to_string(i), i));
    recorder->WriteQueued();
  }
  EXPECT_LE(open_files() - before, 256);
  recorder->Add(Call("m0", 7));
  recorder->WriteQueued();
  EXPECT_EQ(Versions("m0"), (std::vector<int64_t>{0, 7}));
}

TEST_F(RecorderTest, recordings_are_not_for_everybody) {
  const auto recorder = Make(Options());
  recorder->Add(Call("a", 1));
  recorder->WriteQueued();
  struct stat facts;
  ASSERT_EQ(stat((dir_.File("recordings") + "/a/0000000001.ulfrec").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07, 0u);
}

TEST_F(RecorderTest, chooses_the_share_of_each_model) {
  RecorderOptions options = Options();
  options.share = 0.25;
  options.model_shares = {{"all", 1.0}, {"none", 0.0}};
  const auto recorder = Make(options);
  int some = 0, all = 0, none = 0;
  for (int i = 0; i < 20000; ++i) {
    some += recorder->Choose("some");
    none += recorder->Choose("none");
  }
  for (int i = 0; i < 1000; ++i) all += recorder->Choose("all");
  EXPECT_NEAR(some, 5000, 250);
  EXPECT_EQ(all, 1000);
  EXPECT_EQ(none, 0);
  recorder->SetModelShares({{"some", 1.0}, {"all", 0.0}});
  EXPECT_TRUE(recorder->Choose("some"));
  EXPECT_FALSE(recorder->Choose("all"));
  none = 0;
  for (int i = 0; i < 20000; ++i) none += recorder->Choose("none");
  EXPECT_NEAR(none, 5000, 250);
}

TEST_F(RecorderTest, chooses_no_more_than_max_per_second) {
  RecorderOptions options = Options();
  options.max_per_second = 10;
  const auto recorder = Make(options);
  const auto chosen = [&](const std::string& model) {
    int count = 0;
    for (int i = 0; i < 25; ++i) count += recorder->Choose(model);
    return count;
  };
  EXPECT_EQ(chosen("a"), 10);
  EXPECT_EQ(chosen("b"), 10);
  EXPECT_EQ(chosen("a"), 0);
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(chosen("a"), 10);
  EXPECT_EQ(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kRate)], 70);
}

TEST_F(RecorderTest, the_slowest_of_a_minute_are_written_when_it_is_over) {
  RecorderOptions options = Options();
  options.slowest_per_minute = 3;
  options.model_shares = {{"never", 0.0}};
  const auto recorder = Make(options);
  const auto offer = [&](int64_t duration_us) {
    if (!recorder->AmongSlowest("a", duration_us)) return;
    recorder->AddSlow(Call("a", duration_us, 1000, duration_us));
  };
  for (int64_t i = 1; i <= 30; ++i) offer(i * 7 % 31);
  EXPECT_FALSE(recorder->AmongSlowest("a", 28));
  EXPECT_TRUE(recorder->AmongSlowest("a", 29));
  EXPECT_FALSE(recorder->AmongSlowest("never", 29));
  EXPECT_LT(recorder->Stats().queued_bytes, 4000);  // Of three.
  recorder->WriteQueued();
  EXPECT_THAT(Versions("slowest/a"), IsEmpty());
  clock_.Advance(std::chrono::minutes(1));
  offer(5);  // Of the next minute.
  recorder->WriteQueued();
  EXPECT_THAT(Versions("slowest/a"), ElementsAre(30, 29, 28));
  EXPECT_THAT(Versions("a"), IsEmpty());
  clock_.Advance(std::chrono::minutes(5));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("slowest/a"), ElementsAre(30, 29, 28, 5));
  EXPECT_EQ(recorder->Stats().queued_bytes, 0);
}

TEST_F(RecorderTest, the_slowest_have_memory_of_their_own_and_the_faster_make_room) {
  RecorderOptions options = Options();
  options.slowest_per_minute = 100;
  options.max_queued_bytes = 70000;
  const auto recorder = Make(options);
  for (int64_t i = 1; i <= 10; ++i) recorder->AddSlow(Call("a", i, 20000, i));
  EXPECT_LE(recorder->Stats().queued_bytes, 70000);
  EXPECT_EQ(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kQueueFull)], 7);
  EXPECT_FALSE(recorder->AmongSlowest("a", 7));  // It would only be dropped again.
  recorder->Add(Call("a", 11, 50000));
  EXPECT_EQ(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kQueueFull)], 7);
  clock_.Advance(std::chrono::minutes(1));
  EXPECT_TRUE(recorder->AmongSlowest("a", 7));
  // While the disk hangs, those of further minutes find less room, and then none.
  for (int64_t i = 12; i <= 20; ++i) {
    recorder->AddSlow(Call("a", i, 20000, i));
    EXPECT_LE(recorder->Stats().queued_bytes, 140000);
    clock_.Advance(std::chrono::minutes(1));
  }
  EXPECT_TRUE(recorder->AmongSlowest("a", 7));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("slowest/a"), ElementsAre(10, 9, 8, 12));
  EXPECT_THAT(Versions("a"), ElementsAre(11));
  EXPECT_EQ(recorder->Stats().queued_bytes, 0);
}

TEST_F(RecorderTest, the_end_writes_the_slowest_so_far) {
  RecorderOptions options = Options();
  options.slowest_per_minute = 3;
  auto recorder = Recorder::Create(options, clock_, [](const absl::Status&, int64_t) {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  for (int64_t i = 1; i <= 9; ++i) (*recorder)->AddSlow(Call("a", i, 1000, i));
  recorder->reset();
  EXPECT_THAT(Versions("slowest/a"), ElementsAre(9, 8, 7));
}

TEST_F(RecorderTest, a_full_queue_drops) {
  RecorderOptions options = Options();
  options.max_queued_bytes = 5000;
  const auto recorder = Make(options);
  for (int i = 1; i <= 10; ++i) recorder->Add(Call("a", i));
  const RecorderStats stats = recorder->Stats();
  EXPECT_LE(stats.queued_bytes, 5000);
  EXPECT_EQ(stats.dropped[static_cast<size_t>(RecorderDrop::kQueueFull)], 6);
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(1, 2, 3, 4));
  recorder->Add(Call("a", 11));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(1, 2, 3, 4, 11));
}

TEST_F(RecorderTest, a_record_without_memory_is_lost_alone) {
  const auto recorder = Make(Options());
  recorder->Add(Call("a", 1));
  for (int64_t bytes = 100; recorder->Stats().records == 0; bytes += 100) {
    const LoadScope scope({.max_memory_bytes = bytes});
    recorder->WriteQueued();
    clock_.Advance(std::chrono::seconds(60));
    LoadScope::WithoutRefusals unrefused;
    recorder->Add(Call("a", 2));
    ASSERT_LT(bytes, 1 << 20);
  }
  EXPECT_GT(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kDisk)], 1);
  EXPECT_THAT(Versions("a"), ::testing::Contains(2));
}

TEST_F(RecorderTest, files_rotate_within_their_bounds) {
  RecorderOptions options = Options();
  options.max_file_bytes = 65536;
  options.max_files = 3;
  const auto recorder = Make(options);
  for (int i = 1; i <= 1000; ++i) {
    recorder->Add(Call("a", i));
    recorder->WriteQueued();
    ASSERT_LE(DiskBytes(), 3 * 65536);
  }
  const std::vector<int64_t> versions = Versions("a");
  EXPECT_EQ(versions.back(), 1000);
  EXPECT_EQ(versions.front(), 1001 - static_cast<int64_t>(versions.size()));
  EXPECT_GT(versions.size(), 2 * 63u);
  EXPECT_EQ(recorder->Stats().records, 1000);
}

TEST_F(RecorderTest, a_restart_goes_on_with_a_new_file_and_the_same_bounds) {
  RecorderOptions options = Options();
  options.max_files = 2;
  for (int start = 1; start <= 4; ++start) {
    const auto recorder = Make(options);
    recorder->Add(Call("a", start));
    recorder->WriteQueued();
  }
  EXPECT_THAT(Versions("a"), ElementsAre(3, 4));
  const auto files = recording::ListFiles(options.directory + "/a");
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ(files->back().number, 4);
}

TEST_F(RecorderTest, two_daemons_may_share_a_directory) {
  RecorderOptions options = Options();
  options.max_file_bytes = 3000;
  options.max_files = 100;
  const auto first = Make(options), second = Make(options);
  for (int64_t i = 1; i <= 6; ++i) {
    for (const auto& recorder : {first.get(), second.get()}) {
      recorder->Add(Call("a", i, 2000));
      recorder->WriteQueued();
    }
  }
  EXPECT_THAT(changes_, IsEmpty());
  EXPECT_THAT(Versions("a"), ElementsAre(1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6));
}

TEST_F(RecorderTest, a_record_larger_than_a_file_is_dropped) {
  RecorderOptions options = Options();
  options.max_file_bytes = 65536;
  const auto recorder = Make(options);
  recorder->Add(Call("a", 1, 65536));
  recorder->Add(Call("a", 2, 60000));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(2));
  EXPECT_EQ(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kTooLarge)], 1);
}

// The kernel refuses to let files grow, as it does on a full disk.
TEST_F(RecorderTest, a_full_disk_stops_it_until_the_next_try) {
  RecorderOptions options = Options();
  options.retry_interval = std::chrono::seconds(30);
  const auto recorder = Make(options);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{3000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  for (int i = 1; i <= 5; ++i) recorder->Add(Call("a", i));
  recorder->WriteQueued();
  // It says so once.
  ASSERT_EQ(changes_.size(), 1u);
  EXPECT_THAT(changes_[0].first, HasSubstr("0000000001.ulfrec: cannot write: File too large"));
  EXPECT_TRUE(recorder->Stats().failing);
  EXPECT_EQ(recorder->Stats().dropped[static_cast<size_t>(RecorderDrop::kDisk)], 3);
  // With room again it still waits ...
  setrlimit(RLIMIT_FSIZE, &before);
  clock_.Advance(std::chrono::seconds(29));
  recorder->Add(Call("a", 6));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(1, 2));
  // ... and then goes on, where it was, and says how much is missing.
  clock_.Advance(std::chrono::seconds(2));
  recorder->Add(Call("a", 7));
  recorder->WriteQueued();
  EXPECT_THAT(Versions("a"), ElementsAre(1, 2, 7));
  ASSERT_EQ(changes_.size(), 2u);
  EXPECT_EQ(changes_[1], std::make_pair(std::string("OK"), int64_t{4}));
  EXPECT_FALSE(recorder->Stats().failing);
}

TEST_F(RecorderTest, no_record_goes_to_a_file_that_is_gone) {
  const RecorderOptions options = Options();
  const auto recorder = Make(options);
  int64_t version = 0;
  const auto add = [&] {
    recorder->Add(Call("a", ++version));
    recorder->WriteQueued();
  };
  const auto newest = [&] { return recording::ListFiles(options.directory + "/a")->back().path; };
  add();
  std::filesystem::remove_all(options.directory);
  add();
  EXPECT_THAT(Versions("a"), ElementsAre(2));
  std::filesystem::rename(options.directory, options.directory + ".old");
  add();
  EXPECT_THAT(Versions("a"), ElementsAre(3));
  std::filesystem::remove(newest());
  add();
  EXPECT_THAT(Versions("a"), ElementsAre(4));
  std::filesystem::resize_file(newest(), recording::kFileMagic.size());
  add();
  EXPECT_THAT(Versions("a"), ElementsAre(5));
  EXPECT_THAT(changes_, IsEmpty());
}

// It fails like a disk that does, and is tried again.
TEST_F(RecorderTest, a_file_in_the_place_of_the_folder_stops_it_until_it_is_gone) {
  const RecorderOptions options = Options();
  const auto recorder = Make(options);
  recorder->Add(Call("a", 1));
  recorder->WriteQueued();
  std::filesystem::remove_all(options.directory);
  dir_.Write("recordings", "");
  recorder->Add(Call("a", 2));
  recorder->WriteQueued();
  EXPECT_TRUE(recorder->Stats().failing);
  std::filesystem::remove(options.directory);
  clock_.Advance(options.retry_interval);
  recorder->Add(Call("a", 3));
  recorder->WriteQueued();
  EXPECT_FALSE(recorder->Stats().failing);
  EXPECT_THAT(Versions("a"), ElementsAre(3));
}

TEST_F(RecorderTest, a_directory_that_cannot_be_is_an_error) {
  RecorderOptions options = Options();
  options.directory = dir_.Write("file", "") + "/below";
  const auto recorder = Recorder::Create(options, clock_, nullptr);
  EXPECT_THAT(std::string(recorder.status().message()),
              HasSubstr(absl::StrCat("recorder.directory: ", options.directory)));
}

TEST_F(RecorderTest, the_thread_writes_and_the_end_loses_nothing) {
  constexpr int kThreads = 4, kCalls = 200;
  auto recorder = Recorder::Create(Options(), clock_, [](const absl::Status&, int64_t) {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        if ((*recorder)->Choose("a")) (*recorder)->Add(Call("a", t * kCalls + i + 1));
        (*recorder)->Stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  recorder->reset();
  EXPECT_EQ(Versions("a").size(), static_cast<size_t>(kThreads * kCalls));
}

}  // namespace
}  // namespace ulfd::server
