// Tables in RocksDB: every row of every format, bounded memory, several readers, and every kind of
// damage.
// SPDX-License-Identifier: Apache-2.0
#include "engine/stores/rocksdb_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "engine/stores/open_tier.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

class RocksdbStoreTest : public ::testing::Test {
 protected:
  // Row `id` of ids 0 .. count - 1 (times 7, minus 100) holds id, id / 2, ...
  static std::vector<float> RowOf(int64_t id, int64_t dim) {
    std::vector<float> row;
    for (int64_t c = 1; c <= dim; ++c) {
      row.push_back(static_cast<float>(id) / static_cast<float>(c));
    }
    return row;
  }
  static int64_t IdOf(int64_t i) { return 7 * i - 100; }

  absl::StatusOr<RowReport> Write(const std::string& name, int64_t count, int64_t dim,
                                  const RowSorterOptions& options = {}, int64_t twice = -1) {
    RowSorter rows(dir_.File(name + ".rows"), options);
    absl::Status status = rows.Begin(dim, count);
    for (int64_t i = 0; status.ok() && i < count + (twice >= 0 ? 1 : 0); ++i) {
      const int64_t id = IdOf(i < count ? i : twice);
      const std::vector<float> row = RowOf(id, dim);
      std::copy(row.begin(), row.end(), *rows.NextRow());
      status = rows.Commit(id);
    }
    if (!status.ok()) return status;
    return WriteRocksdb(dir_.File(name), rows, nullptr);
  }

  absl::StatusOr<std::unique_ptr<const RowStore>> Open(const std::string& name) {
    return OpenRocksdb(dir_.File(name));
  }
  static RowSet SetOf(const RowStore& store, const std::vector<int64_t>& ids) {
    RowSet rows;
    rows.Reset(store.table().row_bytes());
    rows.AddIds(ids);
    rows.Reserve();
    return rows;
  }
  static absl::Status Read(const RowStore& store, RowSet& rows,
                           TimePoint deadline = Clock::now() + seconds(60)) {
    RowRead read{.store = &store, .rows = &rows, .wanted = {}, .status = {}};
    for (size_t i = 0; i < rows.size(); ++i) read.wanted.push_back(i);
    RowRead* const reads[] = {&read};
    store.Read(reads, deadline);
    return read.status;
  }

  // The files of the directory that end so.
  std::vector<std::string> Files(const std::string& name, absl::string_view end) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(dir_.File(name))) {
      if (absl::EndsWith(entry.path().string(), end)) files.push_back(entry.path().string());
    }
    return files;
  }

  // All rows of the directory, one after the other.
  struct Rows : RowSink {
    absl::Status Begin(int64_t dim, int64_t) override {
      row.resize(static_cast<size_t>(dim));
      return absl::OkStatus();
    }
    absl::StatusOr<float*> NextRow() override { return row.data(); }
    absl::Status Commit(int64_t id) override {
      of.emplace(id, row);
      return absl::OkStatus();
    }
    std::vector<float> row;
    std::map<int64_t, std::vector<float>> of;
  };

  TempDir dir_;
};

TEST_F(RocksdbStoreTest, HasEveryRowOfEveryFormat) {
  for (const RowFormat format :
       {RowFormat::kFp32, RowFormat::kFp16, RowFormat::kBf16, RowFormat::kInt8}) {
    const std::string name(Name(format));
    // So little memory that there are many runs.
    const auto report = Write(name, 3000, 5, {.format = format, .memory_bytes = 20000});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->rows, 3000);
    const auto store = Open(name);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->table().rows, 3000);
    EXPECT_EQ((*store)->table().dim, 5);
    EXPECT_EQ((*store)->table().format, format);
    EXPECT_EQ((*store)->table().digest.size(), 16u);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 3000; ++i) ids.push_back(IdOf(i));
    ids.push_back(1);  // No row has it.
    RowSet rows = SetOf(**store, ids);
    ASSERT_TRUE(Read(**store, rows).ok());
    for (const int64_t id : ids) {
      if (id == 1) continue;
      std::string want(rows.row_bytes(), '\0');
      ASSERT_TRUE(EncodeRow(format, RowOf(id, 5).data(), 5, want.data()));
      ASSERT_EQ(std::memcmp(rows.Find(id), want.data(), want.size()), 0) << id;
    }
    EXPECT_EQ(rows.Find(1), nullptr);
    std::vector<float> mean(5);
    DecodeRow(format, (*store)->table().mean_row.data(), 5, mean.data());
    EXPECT_NEAR(mean[0], IdOf(0) / 2.0 + IdOf(2999) / 2.0, 150);

    Rows all;
    const absl::Status status = ReadRocksdb(dir_.File(name), all);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(all.of.size(), 3000u);
    for (const auto& [id, row] : all.of) {
      std::vector<float> want(5);
      const void* const read = rows.Find(id);
      ASSERT_NE(read, nullptr) << id;
      DecodeRow(format, static_cast<const char*>(read), 5, want.data());
      ASSERT_EQ(row, want) << id;
    }
  }
}

TEST_F(RocksdbStoreTest, ReadingAllRowsFindsWhatIsNotAsItWasWritten) {
  ASSERT_TRUE(Write("t", 20000, 8).ok());
  Rows rows;
  EXPECT_EQ(ReadRocksdb(dir_.File("none"), rows).code(), absl::StatusCode::kNotFound);
  for (const std::string& path : Files("t", ".sst")) {
    if (fs::file_size(path) < 100000) continue;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 * 20 + 50);
    file << std::string(64, '\xa5');
  }
  EXPECT_EQ(ReadRocksdb(dir_.File("t"), rows).code(), absl::StatusCode::kDataLoss);
  EXPECT_LT(rows.of.size(), 20000u);

  // Of another program, with sums that are right.
  ASSERT_TRUE(Write("u", 100, 2).ok());
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, dir_.File("u"), &raw).ok());
  ASSERT_TRUE(raw->Put({}, "r12345678", "8 bytes.").ok());
  ASSERT_TRUE(raw->Flush({}).ok());
  ASSERT_TRUE(raw->Close().ok());
  delete raw;
  EXPECT_THAT(std::string(ReadRocksdb(dir_.File("u"), rows).message()),
              HasSubstr("u: not the rows that were written; 101 of 100 can be read"));
}

TEST_F(RocksdbStoreTest, SeveralReadersAtOnceAndNothingWritten) {
  ASSERT_TRUE(Write("t", 100, 4).ok());
  const auto before = Files("t", "");
  const auto a = Open("t"), b = Open("t");
  ASSERT_TRUE(a.ok() && b.ok());
  for (const auto* store : {&a, &b}) {
    RowSet rows = SetOf(***store, {IdOf(3)});
    ASSERT_TRUE(Read(***store, rows).ok());
    EXPECT_EQ(rows.CountLate(), 0);
  }
  EXPECT_EQ(Files("t", "").size(), before.size());
}

TEST_F(RocksdbStoreTest, ReadsNothingPastTheDeadline) {
  ASSERT_TRUE(Write("t", 100, 4).ok());
  const auto store = Open("t");
  ASSERT_TRUE(store.ok());
  RowSet rows = SetOf(**store, {IdOf(1)});
  EXPECT_TRUE(Read(**store, rows, Clock::now() - seconds(1)).ok());
  EXPECT_EQ(rows.CountLate(), 1);
}

// Wherever RocksDB wants memory that is not there: that read ends, and nothing after it.
TEST_F(RocksdbStoreTest, AReadWithoutMemoryHarmsNoOther) {
  ASSERT_TRUE(Write("t", 2000, 16).ok());
  auto store = Open("t");
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 2000; i += 7) ids.push_back(IdOf(i));
  RowSet rows = SetOf(**store, ids);
  int refused = 0;
  bool read = false;
  for (int64_t bytes = 0; !read; bytes += 256) {
    ASSERT_LT(bytes, 10'000'000);
    // What has been read needs no memory.
    if (refused % 8 == 0) *store = *Open("t");
    rows = SetOf(**store, ids);
    read = WithinMemory([&] {
             const LoadScope scope({.max_memory_bytes = bytes});
             return Read(**store, rows);
           }).ok() &&
           rows.CountLate() == 0;
    refused += !read;
    RowSet others = SetOf(**store, {IdOf(1), IdOf(1500)});
    ASSERT_TRUE(Read(**store, others).ok()) << bytes;
    ASSERT_EQ(others.CountLate(), 0) << bytes;
  }
  EXPECT_GT(refused, 10);
}

TEST_F(RocksdbStoreTest, RefusesRowsThatCannotBe) {
  EXPECT_THAT(std::string(Write("t", 100, 4, {}, 50).status().message()),
              HasSubstr(absl::StrCat("id ", IdOf(50), " has two rows")));
  EXPECT_TRUE(fs::is_empty(dir_.path()));
  EXPECT_EQ(Write("t", 0, 4).status().message(), "no rows, want at least one");
  ASSERT_TRUE(Write("t", 1, 4).ok());
  EXPECT_EQ(Write("t", 1, 4).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(RocksdbStoreTest, OneOfThoseWrittenAtOnceStays) {
  std::vector<absl::Status> statuses(4);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        RowSorter rows(dir_.File(absl::StrCat("rows", i)), {});
        statuses[i] = rows.Begin(1, 1);
        for (int id = 0; id < 2000 && statuses[i].ok(); ++id) {
          **rows.NextRow() = static_cast<float>(i);
          statuses[i] = rows.Commit(id);
        }
        if (statuses[i].ok()) {
          statuses[i] = WriteRocksdb(dir_.File("t"), rows, nullptr).status();
        }
      });
    }
  }
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
  }
  EXPECT_EQ(std::count_if(statuses.begin(), statuses.end(),
                          [](const absl::Status& status) { return status.ok(); }),
            1);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 1);
  EXPECT_TRUE(Open("t").ok());
}

TEST_F(RocksdbStoreTest, WhatAKilledBuildLeftIsUsedAgain) {
  std::filesystem::create_directory(dir_.File("t.under_way"));
  dir_.Write("t.under_way/left.sst", "half");
  ASSERT_TRUE(Write("t", 100, 4).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_.File("t.under_way")));
  EXPECT_FALSE(std::filesystem::exists(dir_.File("t/left.sst")));
  const auto store = Open("t");
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->table().rows, 100);
}

TEST_F(RocksdbStoreTest, NamesWhatIsWrongWithADirectory) {
  EXPECT_EQ(Open("none").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Write("t", 5000, 8).ok());
  const auto copy = [&](const std::string& name) {
    fs::copy(dir_.File("t"), dir_.File(name), fs::copy_options::recursive);
  };
  const auto overwrite = [](const std::string& path, int64_t at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
  };
  copy("current");
  overwrite(dir_.File("current/CURRENT"), 0, "nonsense");
  EXPECT_THAT(std::string(Open("current").status().message()), HasSubstr("current"));
  copy("cut");
  for (const std::string& path : Files("cut", ".sst")) fs::resize_file(path, 1000);
  EXPECT_EQ(Open("cut").status().code(), absl::StatusCode::kDataLoss) << Open("cut").status();
  copy("gone");
  for (const std::string& path : Files("gone", ".sst")) fs::remove(path);
  EXPECT_FALSE(Open("gone").ok());
  copy("twice");  // As by a copy that began anew behind what was there.
  const std::string list = dir_.File("twice/MANIFEST-000005");
  std::stringstream all;
  all << std::ifstream(list, std::ios::binary).rdbuf();
  ASSERT_GT(all.str().size(), 100);
  std::ofstream(list, std::ios::app | std::ios::binary) << all.str();
  EXPECT_THAT(std::string(Open("twice").status().message()),
              HasSubstr(": goes back from sequence 1 to 0"));
  copy("fifo");
  ASSERT_EQ(mkfifo(dir_.File("fifo/000099.sst").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Open("fifo").status().message()), HasSubstr("000099.sst"));
}

// Where a block of such a file is damaged, RocksDB ends the process.
TEST_F(RocksdbStoreTest, RefusesFilesWithoutSums) {
  ASSERT_TRUE(Write("t", 10, 2).ok());
  const auto add = [&](rocksdb::ChecksumType sums) {
    rocksdb::BlockBasedTableOptions blocks;
    blocks.checksum = sums;
    rocksdb::Options options;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(blocks));
    rocksdb::DB* db = nullptr;
    ASSERT_TRUE(rocksdb::DB::Open(options, dir_.File("t"), &db).ok());
    rocksdb::WriteOptions write;
    write.disableWAL = true;
    EXPECT_TRUE(db->Put(write, "s", "another key").ok());
    EXPECT_TRUE(db->Flush(rocksdb::FlushOptions()).ok());
    EXPECT_TRUE(db->Close().ok());
    delete db;
  };
  add(rocksdb::kCRC32c);
  EXPECT_TRUE(Open("t").ok()) << Open("t").status();
  add(rocksdb::kNoChecksum);
  EXPECT_THAT(std::string(Open("t").status().message()),
              HasSubstr(".sst: its blocks have no checksums"));
  // RocksDB looks for another name, too.
  for (const std::string& path : Files("t", ".sst")) {
    fs::rename(path, fs::path(path).replace_extension(".ldb"));
  }
  EXPECT_THAT(std::string(Open("t").status().message()),
              HasSubstr(".ldb: its blocks have no checksums"));
}

// A log would be applied, and a list read, in memory that no load counts.
TEST_F(RocksdbStoreTest, RefusesWhatRocksdbWouldTakeIntoMemory) {
  ASSERT_TRUE(Write("t", 10, 2).ok());
  for (const auto& [name, bytes] :
       {std::pair("000099.log", 1), std::pair("MANIFEST-000005", 1 << 30)}) {
    const std::string path = dir_.File(absl::StrCat("t/", name));
    const bool is_new = !fs::exists(path);
    const auto before = is_new ? 0 : fs::file_size(path);
    std::ofstream(path, std::ios::app).close();
    fs::resize_file(path, bytes);
    EXPECT_THAT(std::string(Open("t").status().message()),
                HasSubstr(absl::StrCat(name, ": ", bytes, " bytes, want at most")));
    fs::resize_file(path, before);
  }
  EXPECT_TRUE(Open("t").ok());
}

// An exception within a listing must not end the process, wherever it falls.
TEST_F(RocksdbStoreTest, ALoadWithoutMemoryIsRefused) {
  ASSERT_TRUE(Write("some", 10, 2).ok());
  int refused = 0;
  absl::Status status = absl::UnknownError("");
  for (int64_t bytes = 0; !status.ok(); bytes += 32) {
    ASSERT_LT(bytes, 1 << 20) << status;
    const LoadScope scope({.max_memory_bytes = bytes});
    status = WithinMemory([this] { return Open("some").status(); });
    refused += absl::IsResourceExhausted(status);
  }
  EXPECT_GT(refused, 0);
}

TEST_F(RocksdbStoreTest, NamesTheIdOfADamagedRow) {
  ASSERT_TRUE(Write("t", 20000, 8).ok());
  std::vector<std::string> files = Files("t", ".sst");
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return fs::file_size(a) > fs::file_size(b); });
  std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 * 20 + 50);
  file << std::string(64, '\xa5');
  file.close();
  const auto store = Open("t");
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 20000; ++i) ids.push_back(IdOf(i));
  RowSet rows = SetOf(**store, ids);
  const absl::Status status = Read(**store, rows);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(dir_.File("t"), ": id ")));
  EXPECT_GT(rows.CountLate(), 0);
  EXPECT_LT(rows.CountLate(), 1000) << "others can be read";
}

TEST_F(RocksdbStoreTest, KeepsToTheRootsOfTheLoad) {
  ASSERT_TRUE(Write("t", 10, 2).ok());
  TempDir elsewhere;
  LoadLimits limits;
  limits.roots = {fs::canonical(elsewhere.path()).string()};
  const LoadScope scope(limits);
  EXPECT_EQ(Open("t").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RocksdbStoreTest, VersionsShareATierOfEqualContents) {
  ASSERT_TRUE(Write("a", 10, 2).ok());
  ASSERT_TRUE(Write("b", 10, 2).ok());
  ASSERT_TRUE(Write("c", 11, 2).ok());
  ulfd::model::v1::TableStore store;
  const auto open = [&](const std::string& name) {
    auto tier = OpenRowTier(store, dir_.File(name), nullptr);
    EXPECT_TRUE(tier.ok()) << tier.status();
    return tier.ok() ? *tier : nullptr;
  };
  const auto a = open("a");
  EXPECT_EQ(open("b"), a);
  EXPECT_NE(open("c"), a);
  store.set_cache_bytes(1 << 20);
  EXPECT_NE(open("b"), a);
}

}  // namespace
}  // namespace ulfd::engine
