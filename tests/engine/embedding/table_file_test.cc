// Table files: every format against text, every kind of damage, sharing, files that are cut while
// they are mapped.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/load_scope.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table_file_writer.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RowFormat kFormats[] = {RowFormat::kFp32, RowFormat::kFp16, RowFormat::kBf16,
                                  RowFormat::kInt8};

struct Rows {
  std::vector<int64_t> ids;
  int64_t dim = 0;
  std::vector<float> values;
};

Rows MakeRows(int64_t count, int64_t dim, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::set<int64_t> ids = {0, -1, INT64_MIN, INT64_MAX};
  while (static_cast<int64_t>(ids.size()) < count) ids.insert(static_cast<int64_t>(random()));
  Rows rows{{ids.begin(), ids.end()}, dim, {}};
  rows.ids.resize(count);
  std::shuffle(rows.ids.begin(), rows.ids.end(), random);
  std::normal_distribution<float> values(0.1f, 0.5f);
  for (int64_t i = 0; i < count * dim; ++i) rows.values.push_back(values(random));
  return rows;
}

// With ids that follow each other.
Rows MakeConsecutive(int64_t first, int64_t count, int64_t dim) {
  Rows rows = MakeRows(count, dim);
  for (int64_t i = 0; i < count; ++i) rows.ids[i] = first + i;
  return rows;
}

class TableFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<TableFileReport> Write(const std::string& path, const Rows& rows,
                                        const TableFileOptions& options = {}) {
    TableFileWriter writer(path, options);
    absl::Status status = writer.Begin(rows.dim, 0);
    for (size_t i = 0; status.ok() && i < rows.ids.size(); ++i) {
      std::copy_n(rows.values.data() + i * rows.dim, rows.dim, *writer.NextRow());
      status = writer.Commit(rows.ids[i]);
    }
    if (!status.ok()) return status;
    return writer.Finish();
  }
  std::string MustWrite(const std::string& name, const Rows& rows,
                        const TableFileOptions& options = {}) {
    const auto report = Write(dir_.File(name), rows, options);
    EXPECT_TRUE(report.ok()) << report.status();
    return dir_.File(name);
  }
  static absl::Status Verify(const std::string& path) {
    return VerifyTableFile(path, [](uint64_t, uint64_t) {});
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // The error of opening the file, without the directory; "ok" if there is none.
  std::string OpenError(const std::string& content) {
    const auto table = EmbeddingTable::Load("t", dir_.Write("damaged", content), {});
    if (table.ok()) return "ok";
    EXPECT_EQ(table.status().message().substr(0, dir_.path().size()), dir_.path());
    return std::string(table.status().message().substr(dir_.path().size() + 1));
  }
  TempDir dir_;
};

std::vector<float> RowOf(const EmbeddingTable& table, const void* row) {
  std::vector<float> values(static_cast<size_t>(table.dim()));
  DecodeRow(table.format(), static_cast<const char*>(row), table.dim(), values.data());
  return values;
}

// Every row of the table, and nothing for ids far from them.
void ExpectHolds(const EmbeddingTable& table, const Rows& rows) {
  EXPECT_EQ(table.rows(), static_cast<int64_t>(rows.ids.size()));
  EXPECT_EQ(table.dim(), rows.dim);
  EXPECT_LT(table.bytes(), 1 << 20);
  std::vector<char> encoded(RowBytes(table.format(), rows.dim));
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const void* const row = table.Find(rows.ids[i]);
    ASSERT_NE(row, nullptr) << rows.ids[i];
    const float* const values = rows.values.data() + i * rows.dim;
    ASSERT_TRUE(EncodeRow(table.format(), values, rows.dim, encoded.data()));
    ASSERT_EQ(std::memcmp(row, encoded.data(), encoded.size()), 0);
    ASSERT_EQ(table.Find(rows.ids[i] ^ 0x5555), nullptr);
  }
}

TEST_F(TableFileTest, HoldsEveryRowInEveryFormat) {
  for (const int64_t dim : {1, 7, 18, 64}) {
    for (const int64_t count : {1, 4, 5000}) {
      for (const RowFormat format : kFormats) {
        SCOPED_TRACE(absl::StrCat(Name(format), " ", count, " x ", dim));
        for (const Rows& rows : {MakeRows(count, dim), MakeConsecutive(-3, count, dim)}) {
          const std::string path = MustWrite("t.ulft", rows, {.format = format});
          ASSERT_TRUE(Verify(path).ok()) << Verify(path);
          const auto loaded = EmbeddingTable::Load("t", path, {});
          ASSERT_TRUE(loaded.ok()) << loaded.status();
          ExpectHolds(**loaded, rows);
        }
      }
    }
  }
}

TEST_F(TableFileTest, ConsecutiveIdsNeedNoIndex) {
  constexpr int64_t kRows = 5000;
  const uint64_t hashed = Write(dir_.File("t"), MakeRows(kRows, 18))->bytes;
  for (const int64_t first : {int64_t{0}, INT64_MIN, INT64_MAX - kRows + 1}) {
    const Rows rows = MakeConsecutive(first, kRows, 18);
    const std::string path = MustWrite("t", rows);
    EXPECT_LT(std::filesystem::file_size(path), hashed * 0.93);
    const auto table = EmbeddingTable::Load("t", path, {.missing_keys = MissingKeys::kMeanRow});
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_TRUE((*table)->base()->first_id.has_value());
    EXPECT_EQ(*(*table)->base()->first_id, first);
    for (const int64_t id : {INT64_MIN, first, INT64_MAX, first + kRows - 1}) {
      EXPECT_EQ((*table)->Find(id) != nullptr, id >= first && id <= first + (kRows - 1)) << id;
    }
    double sum = 0;
    for (int64_t i = 0; i < kRows; ++i) sum += rows.values[i * 18];
    EXPECT_NEAR(RowOf(**table, (*table)->missing_row())[0], sum / kRows, 1e-6);
    for (uint64_t number = 0; number < 100; ++number) {
      EXPECT_TRUE((*table)->Sample(number).has_value());
    }
  }
}

// Where the last id breaks the order, and runs lie on disk already.
TEST_F(TableFileTest, ABrokenOrderLeavesNoTrace) {
  for (const int64_t last : {int64_t{-1}, int64_t{20001}, INT64_MIN}) {
    Rows rows = MakeConsecutive(0, 20000, 4);
    rows.ids.back() = last;
    const std::string in_order = MustWrite("a", rows, {.memory_bytes = 100000});
    ASSERT_TRUE(Verify(in_order).ok()) << Verify(in_order);
    std::swap(rows.ids[0], rows.ids[9]);
    std::swap_ranges(rows.values.begin(), rows.values.begin() + 4, rows.values.begin() + 36);
    EXPECT_EQ(Content(in_order), Content(MustWrite("b", rows)));
  }
  Rows wraps = MakeConsecutive(INT64_MAX - 1, 2, 1);
  wraps.ids.push_back(INT64_MIN);
  wraps.values.push_back(1);
  const auto table = EmbeddingTable::Load("t", MustWrite("t", wraps), {});
  ASSERT_TRUE(table.ok()) << table.status();
  ExpectHolds(**table, wraps);
  EXPECT_EQ(Write(dir_.File("u"), {{1, 2, 3, 3}, 1, {1, 2, 3, 4}}).status().message(),
            "id 3 has two rows");
}

TEST_F(TableFileTest, IsTheSameWhateverTheMemory) {
  for (const Rows& rows : {MakeRows(20000, 4), MakeConsecutive(7, 20000, 4)}) {
    const std::string little = MustWrite("a", rows, {.memory_bytes = 400000});
    const std::string much = MustWrite("b", rows);
    EXPECT_EQ(Content(little), Content(much));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 2);
}

TEST_F(TableFileTest, PlacesIdsThatFitNoBucket) {
  // Ids whose hashes share their high bits: the inverse of HashKey.
  const auto unmix = [](uint64_t x) {
    x ^= x >> 33;
    x *= 0x9cb4b2f8129337dbULL;
    x ^= x >> 33;
    x *= 0x4f74430c22a54005ULL;
    return static_cast<int64_t>(x ^ (x >> 33));
  };
  ASSERT_EQ(HashKey(unmix(12345)), 12345u);
  Rows rows = MakeRows(3000, 2);
  for (size_t i = 0; i < 1500; ++i) rows.ids[i] = unmix((uint64_t{7} << 60) + i);
  const auto report = Write(dir_.File("t"), rows);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->displaced, 1000);
  EXPECT_TRUE(Verify(dir_.File("t")).ok()) << Verify(dir_.File("t"));
  const auto table = EmbeddingTable::Load("t", dir_.File("t"), {});
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    ASSERT_EQ(RowOf(**table, (*table)->Find(rows.ids[i]))[1], rows.values[2 * i + 1]);
  }
}

TEST_F(TableFileTest, MissingKeysHavePolicies) {
  const std::string path = MustWrite("t", {{1, 2, 5}, 2, {1, 10, 2, 20, 6, 0}});
  auto table = EmbeddingTable::Load("t", path, {.missing_keys = MissingKeys::kMeanRow});
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(RowOf(**table, (*table)->missing_row()), ElementsAre(3, 10));
  table = EmbeddingTable::Load("t", dir_.Write("text", "1,1,10\n2,2,20\n5,6,0\n"),
                               {.missing_keys = MissingKeys::kMeanRow});
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(RowOf(**table, (*table)->missing_row()), ElementsAre(3, 10));
  table =
      EmbeddingTable::Load("t", path, {.missing_keys = MissingKeys::kDefaultRow, .default_id = 5});
  ASSERT_TRUE(table.ok());
  EXPECT_THAT(RowOf(**table, (*table)->missing_row()), ElementsAre(6, 0));
  table =
      EmbeddingTable::Load("t", path, {.missing_keys = MissingKeys::kDefaultRow, .default_id = 3});
  EXPECT_EQ(table.status().message(), path + ": lacks the default id 3");
}

TEST_F(TableFileTest, ReportsWhatTheFormatCosts) {
  const Rows rows = MakeRows(2000, 16);
  for (const auto& [format, most] : {std::pair(RowFormat::kFp32, 0.0),
                                     {RowFormat::kFp16, 1e-3},
                                     {RowFormat::kBf16, 8e-3},
                                     {RowFormat::kInt8, 1e-2}}) {
    const auto report = Write(dir_.File("t"), rows, {.format = format});
    ASSERT_TRUE(report.ok());
    EXPECT_LE(report->root_mean_square_error, most);
    EXPECT_LE(report->largest_error, 2 * most);
    EXPECT_EQ(report->largest_error > 0, format != RowFormat::kFp32);
  }
}

TEST_F(TableFileTest, RefusesRowsThatItCannotHold) {
  const float nan = std::nanf(""), inf = INFINITY;
  EXPECT_EQ(Write(dir_.File("t"), {{4, 7}, 1, {1, nan}}).status().message(),
            "id 7: a value is not finite, or too large for fp32");
  EXPECT_EQ(
      Write(dir_.File("t"), {{7}, 1, {-inf}}, {.format = RowFormat::kInt8}).status().message(),
      "id 7: a value is not finite, or too large for int8");
  EXPECT_EQ(
      Write(dir_.File("t"), {{7}, 1, {65520}}, {.format = RowFormat::kFp16}).status().message(),
      "id 7: a value is not finite, or too large for fp16");
  EXPECT_TRUE(Write(dir_.File("t"), {{7}, 1, {65504}}, {.format = RowFormat::kFp16}).ok());
  EXPECT_EQ(Write(dir_.File("u"), {{4, 7, 4}, 1, {1, 2, 3}}).status().message(),
            "id 4 has two rows");
  EXPECT_EQ(Write(dir_.File("u"), {{}, 1, {}}).status().message(), "no rows, want at least one");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);  // "t"
  TableFileWriter writer(dir_.File("u"), {});
  ASSERT_TRUE(writer.Begin(3, 0).ok());
  EXPECT_EQ(writer.Begin(4, 0).message(), "rows of 4 values, those before have 3");
}

TEST_F(TableFileTest, NamesDamageOfTheHeader) {
  const std::string good = Content(MustWrite("t", MakeRows(100, 4)));
  EXPECT_EQ(OpenError(good), "ok");
  EXPECT_THAT(OpenError(good.substr(0, 50)), HasSubstr("damaged: cut after 50 bytes"));
  EXPECT_THAT(OpenError(good.substr(0, good.size() - 1)),
              HasSubstr(absl::StrCat(good.size() - 1, " bytes, the header says ", good.size())));
  EXPECT_THAT(OpenError(good + "x"), HasSubstr("the header says"));
  std::string other = good;
  std::reverse(other.begin() + 8, other.begin() + 12);
  EXPECT_THAT(OpenError(other), HasSubstr("of a machine with the other byte order"));
  other = good;
  other[12] = 3;
  EXPECT_THAT(OpenError(other), HasSubstr("damaged: version 3, want 1 or 2"));
  for (size_t at = 16; at < sizeof(TableFileHeader); ++at) {
    other = good;
    other[at] ^= 4;
    EXPECT_THAT(OpenError(other), HasSubstr("the checksum of the header")) << at;
  }
}

// Any number in the header, under a checksum that is right: an error, or lookups that stay inside.
class HostileTableFileTest : public TableFileTest, public ::testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(Consecutive, HostileTableFileTest, ::testing::Bool());

TEST_P(HostileTableFileTest, HeadersNeverReadBeyondTheFile) {
  const std::string good =
      Content(MustWrite("t", GetParam() ? MakeConsecutive(-9, 100, 4) : MakeRows(100, 4)));
  const uint64_t edges[] = {0,
                            1,
                            3,
                            11,
                            100,
                            4096,
                            UINT32_MAX,
                            uint64_t{1} << 40,
                            uint64_t{1} << 62,
                            UINT64_MAX - 1,
                            UINT64_MAX};
  int refused = 0, tried = 0;
  for (size_t at = 16; at + 8 <= offsetof(TableFileHeader, checksum); at += 4) {
    for (const uint64_t edge : edges) {
      std::string other = good;
      std::memcpy(other.data() + at, &edge, sizeof edge);
      TableFileHeader header;
      std::memcpy(&header, other.data(), sizeof header);
      header.checksum = ChecksumOf(header);
      std::memcpy(other.data(), &header, sizeof header);
      ++tried;
      const auto table = EmbeddingTable::Load("t", dir_.Write("damaged", other), {});
      if (!table.ok()) {
        ++refused;
        EXPECT_THAT(table.status().message(), HasSubstr("damaged: "));
        continue;
      }
      float sum = 0;
      for (int64_t id = -100; id < 100; ++id) {
        const void* const row = (*table)->Find(id);
        if (row != nullptr) sum += RowOf(**table, row)[0];
      }
      EXPECT_FALSE(std::isnan(sum));
    }
  }
  EXPECT_GT(refused, tried * (GetParam() ? 7 : 8) / 10);  // Any number may be a first id.
}

TEST_P(HostileTableFileTest, EveryFlippedBitIsFound) {
  const std::string good =
      Content(MustWrite("t", GetParam() ? MakeConsecutive(-9, 300, 3) : MakeRows(300, 3)));
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    std::string other = good;
    const size_t at = random() % good.size();
    other[at] ^= static_cast<char>(1 << random() % 8);
    const std::string path = dir_.Write("damaged", other);
    for (const absl::Status& status : {Verify(path), CheckTableFile(path)}) {
      ASSERT_FALSE(status.ok()) << at;
      EXPECT_THAT(status.message(), HasSubstr("damaged: ")) << at;
    }
  }
  std::string other = good;
  other[kTableAlign + kTableBlockBytes / 2 % (good.size() - 2 * kTableAlign)] ^= 1;
  EXPECT_THAT(Verify(dir_.Write("damaged", other)).message(), HasSubstr("bytes 4096 to "));
}

TEST_F(TableFileTest, DisplacedKeysOfOtherSlotsAreRefused) {
  Rows rows = MakeRows(40000, 1);
  std::string content = Content(MustWrite("t", rows));
  TableFileHeader header;
  std::memcpy(&header, content.data(), sizeof header);
  ASSERT_GT(header.displaced, 0u);
  const uint64_t slot = header.shape().slots();
  std::memcpy(content.data() + LayoutOf(header).displaced + 8, &slot, sizeof slot);
  EXPECT_THAT(OpenError(content), HasSubstr("damaged: displaced key 0 is in slot"));
}

TEST_F(TableFileTest, OneMappingForAllOfOneContent) {
  const Rows rows = MakeRows(100, 4);
  const std::string first = MustWrite("a", rows), second = MustWrite("b", rows);
  const std::string third = MustWrite("c", MakeRows(100, 4, 9));
  const auto a = EmbeddingTable::Load("a", first, {});
  const auto b = EmbeddingTable::Load("b", second, {.missing_keys = MissingKeys::kMeanRow});
  const auto c = EmbeddingTable::Load("c", third, {});
  EXPECT_EQ((*a)->Find(rows.ids[7]), (*b)->Find(rows.ids[7]));
  EXPECT_EQ((*b)->name(), "b");
  EXPECT_NE((*b)->missing_row(), nullptr);
  EXPECT_EQ((*a)->digest(), (*b)->digest());
  EXPECT_NE((*a)->digest(), (*c)->digest());
}

TEST_F(TableFileTest, WhatIsOpenOrNoTableFileIsNotChecked) {
  const std::string path = MustWrite("t", MakeRows(100, 4));
  EXPECT_TRUE(CheckTableFile(path).ok());
  std::string other = Content(path);
  other[kTableAlign] ^= 1;
  const std::string damaged = dir_.Write("damaged", other);
  EXPECT_EQ(CheckTableFile(damaged).code(), absl::StatusCode::kDataLoss);
  {
    const auto table = EmbeddingTable::Load("t", path, {});
    EXPECT_TRUE(CheckTableFile(damaged).ok());  // Rows of the same digest are taken in its place.
  }
  EXPECT_FALSE(CheckTableFile(damaged).ok());
  EXPECT_TRUE(CheckTableFile(dir_.Write("text", "1 0.5 0.5\n")).ok());
}

// Damage that a check aside finds ends the lookups that meet it, and no others.
TEST_F(TableFileTest, LookupsOfDamagedRowsEnd) {
  for (const bool consecutive : {false, true}) {
    const Rows rows = consecutive ? MakeConsecutive(5, 9000, 16) : MakeRows(9000, 16);
    const std::string good = Content(MustWrite("t", rows));
    TableFileHeader header;
    std::memcpy(&header, good.data(), sizeof header);
    const uint64_t slots = LayoutOf(header).slots;
    const auto open = [&](uint64_t damaged_byte) {
      std::string other = good;
      if (damaged_byte > 0) other[damaged_byte] ^= 4;
      auto table = EmbeddingTable::Load("t", dir_.Write("other", other), {});
      EXPECT_TRUE(table.ok()) << table.status();
      return *std::move(table);
    };
    uint64_t read = 0;
    const auto check = [&](const EmbeddingTable& table) {
      return CheckMappedTable(*table.base(), [&](size_t bytes) {
        read += bytes;
        return absl::OkStatus();
      });
    };
    {
      const auto table = open(0);
      EXPECT_TRUE(check(*table).ok());
      EXPECT_EQ(read, LayoutOf(header).sums - kTableAlign);
      EXPECT_TRUE(table->CheckRead(rows.ids).ok());
    }
    {
      const uint64_t begin = slots + 3 * kTableBlockBytes;
      const auto table = open(begin);
      EXPECT_TRUE(table->CheckRead(rows.ids).ok());
      EXPECT_THAT(check(*table).message(), HasSubstr(" are damaged"));
      EXPECT_FALSE(table->Check().ok());
      size_t lost = 0;
      for (const int64_t id : rows.ids) {
        const absl::Status status = table->CheckRead({&id, 1});
        if (status.ok()) continue;
        ++lost;
        EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
        EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("id ", id, ": ", dir_.File("other"))));
      }
      const size_t of_block = kTableBlockBytes / header.slot_bytes;
      EXPECT_GT(lost, of_block / 2);
      EXPECT_LE(lost, of_block + 2);
    }
    if (consecutive) continue;
    {
      const auto table = open(kTableAlign + 1);  // A pilot.
      EXPECT_FALSE(check(*table).ok());
      for (const int64_t id : rows.ids) EXPECT_FALSE(table->CheckRead({&id, 1}).ok());
      EXPECT_TRUE(table->CheckRead({}).ok());
    }
    {
      const auto table = open(good.size() - 1);  // A checksum.
      EXPECT_FALSE(check(*table).ok());
      EXPECT_FALSE(table->CheckRead(rows.ids).ok());
    }
  }
}

// Whoever may write one model's files can give a file another's header and rows of their own.
TEST_F(TableFileTest, AForgedDigestHarmsNoOtherModel) {
  const Rows rows = MakeRows(100, 4);
  const std::string good = MustWrite("good", rows);
  std::string forged = Content(good);
  TableFileHeader header;
  std::memcpy(&header, forged.data(), sizeof header);
  const TableFileLayout layout = LayoutOf(header);
  for (size_t slot = 0; slot < header.shape().slots(); ++slot) {
    const float wrong = 1e6f;
    std::memcpy(forged.data() + layout.slots + slot * header.slot_bytes + TableRows::kIdBytes,
                &wrong, sizeof wrong);
  }
  const auto load = [](const std::string& owner, const std::string& path) {
    const LoadScope scope({.owner = owner});
    return EmbeddingTable::Load("t", path, {});
  };
  const auto theirs = load("theirs", dir_.Write("forged", forged));
  const auto ours = load("ours", good), again = load("ours", good);
  ASSERT_TRUE(theirs.ok() && ours.ok() && again.ok());
  ASSERT_EQ((*theirs)->digest(), (*ours)->digest());
  EXPECT_NE((*theirs)->Find(rows.ids[7]), (*ours)->Find(rows.ids[7]));
  EXPECT_EQ((*again)->Find(rows.ids[7]), (*ours)->Find(rows.ids[7]));
}

// Pools `ids` of a table of dim 4.
absl::Status Pool(const EmbeddingTable& table, const std::vector<int64_t>& ids) {
  const std::vector<int32_t> segments = {static_cast<int32_t>(ids.size())};
  std::vector<float> out(4);
  const PoolingOutput output{{.dim = 4}, out.data(), 4};
  std::vector<char> scratch(ids.size() * kPoolingScratchBytes);
  int64_t missing = 0;
  size_t failed = 0;
  const FeatureJob job{&table, {ids, nullptr, segments}, {&output, 1}, &missing};
  Pace pace;
  return PoolFeatures({&job, 1}, scratch.data(), pace, &failed);
}

TEST_F(TableFileTest, AFileThatIsCutUnderUsIsAnError) {
  const Rows rows = MakeRows(20000, 4);
  const std::string path = MustWrite("t", rows), other = MustWrite("u", MakeRows(100, 4, 5));
  auto table = EmbeddingTable::Load("t", path, {});
  const auto unharmed = EmbeddingTable::Load("u", other, {});
  ASSERT_TRUE(table.ok() && unharmed.ok());
  EXPECT_TRUE(Pool(**table, rows.ids).ok());
  const std::string content = Content(path);
  std::filesystem::resize_file(path, 8192);
  const absl::Status status = Pool(**table, rows.ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(path + ": byte "));
  EXPECT_THAT(status.message(), HasSubstr(" cannot be read: the file was cut or its disk fails"));
  EXPECT_FALSE(Pool(**table, {1}).ok());  // Nothing of it can be trusted any more.
  EXPECT_TRUE(Pool(**unharmed, {1}).ok());
  // A good file of that content is mapped afresh.
  const auto again = EmbeddingTable::Load("t", dir_.Write("again", content), {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(Pool(**again, rows.ids).ok());
}

// All slots lie in a page that the file still begins.
TEST_F(TableFileTest, RowsThatACutFileLacksAreNotMissing) {
  for (const MissingKeys missing : {MissingKeys::kZero, MissingKeys::kError}) {
    const Rows rows = MakeConsecutive(0, 100, 4);
    const std::string path = MustWrite("t", rows);
    const auto table = EmbeddingTable::Load("t", path, {.missing_keys = missing});
    ASSERT_TRUE(table.ok()) << table.status();
    std::filesystem::resize_file(path, 4096 + 24);
    EXPECT_EQ(Pool(**table, rows.ids).code(), absl::StatusCode::kDataLoss);
  }
}

using TableFileDeathTest = TableFileTest;

TEST_F(TableFileDeathTest, OtherBusErrorsStillKill) {
  const auto table = EmbeddingTable::Load("t", MustWrite("t", MakeRows(10, 4)), {});
  EXPECT_DEATH(raise(SIGBUS), "");
}

TEST(RowFormat, HalvesRoundToTheNearest) {
  const auto halved = [](float value) {
    char bytes[2];
    EXPECT_TRUE(EncodeRow(RowFormat::kFp16, &value, 1, bytes));
    float back;
    DecodeRow(RowFormat::kFp16, bytes, 1, &back);
    return back;
  };
  EXPECT_EQ(halved(1 + 0x1p-11f), 1.0f);         // A tie, to even.
  EXPECT_EQ(halved(1 + 0x3p-11f), 1 + 0x1p-9f);  // A tie, to even.
  EXPECT_EQ(halved(-1 - 0x1.1p-11f), -1 - 0x1p-10f);
  EXPECT_EQ(halved(0x1p-24f), 0x1p-24f);  // The least.
  EXPECT_EQ(halved(0x1p-25f), 0.0f);
  EXPECT_EQ(halved(0x1.8p-24f), 0x1p-23f);
  EXPECT_EQ(halved(65519), 65504.0f);
  EXPECT_TRUE(std::signbit(halved(-0.0f)));
  for (float value = 0x1p-26f; value < 60000; value *= 1.01f) {
    const float spacing = std::max(0x1p-24f, std::exp2(std::floor(std::log2(value)) - 10));
    ASSERT_LE(std::abs(halved(value) - value), spacing / 2);
  }
}

TEST(RowFormat, BytesErrByHalfAStep) {
  std::mt19937 random(4);
  std::normal_distribution<float> values(3, 2);
  for (int round = 0; round < 1000; ++round) {
    std::vector<float> row(1 + random() % 40), back(row.size());
    for (float& value : row) value = values(random);
    std::vector<char> encoded(RowBytes(RowFormat::kInt8, static_cast<int64_t>(row.size())));
    ASSERT_TRUE(
        EncodeRow(RowFormat::kInt8, row.data(), static_cast<int64_t>(row.size()), encoded.data()));
    DecodeRow(RowFormat::kInt8, encoded.data(), static_cast<int64_t>(row.size()), back.data());
    const auto [low, high] = std::minmax_element(row.begin(), row.end());
    // The offset is a half below the least value.
    const float step = (*high - *low + std::max(std::abs(*low), 0.1f) * 0x1p-10f) / 255 * 1.01f;
    for (size_t c = 0; c < row.size(); ++c) ASSERT_LE(std::abs(row[c] - back[c]), step * 0.51f);
  }
}

}  // namespace
}  // namespace ulfd::engine
