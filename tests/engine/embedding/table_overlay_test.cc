// Overlays of tables against a plain map of rows: any order of puts, drops and folds, every format.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table_overlay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "engine/embedding/pooling.h"
#include "engine/embedding/table_file.h"
#include "tests/testing/delta_files.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::HasSubstr;
using testing::TableContent;
using TablePtr = std::shared_ptr<const EmbeddingTable>;

constexpr int64_t kMemory = int64_t{16} << 20;

class TableOverlayTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TableRows> Rows(const TableContent& rows,
                                        RowFormat format = RowFormat::kFp32) {
    const std::string path = dir_.File(absl::StrCat("rows", ++files_));
    testing::WriteTableFile(path, rows, format);
    auto opened = OpenTableFile(*InputFile::Open(path));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return *opened;
  }
  // `table` with one more delta.
  TablePtr Add(const TablePtr& table, const TableContent& put, const std::vector<int64_t>& drop,
               RowFormat format = RowFormat::kFp32, bool compact = false) {
    const auto rows = put.empty() ? nullptr : Rows(put, format);
    auto delta = TableDelta::Make(rows.get(), drop, *table->base());
    EXPECT_TRUE(delta.ok()) << delta.status();
    auto overlay = table->overlay() == nullptr ? std::make_shared<TableOverlay>()
                                               : std::make_shared<TableOverlay>(*table->overlay());
    overlay->Add(*delta);
    if (compact) overlay->Compact();
    auto with = table->With(table->base(), overlay);
    EXPECT_TRUE(with.ok()) << with.status();
    return *std::move(with);
  }
  // Folded as it was at `then`, with what came later on top.
  TablePtr Fold(const TablePtr& then, const TablePtr& now) {
    auto rows = FoldTable(*then, dir_.path(), kMemory);
    EXPECT_TRUE(rows.ok()) << rows.status();
    auto rest = now->overlay()->Beyond(*then->overlay());
    EXPECT_TRUE(rest.ok()) << rest.status();
    auto with = now->With(*rows, *std::move(rest));
    EXPECT_TRUE(with.ok()) << with.status();
    return *std::move(with);
  }
  static std::vector<float> RowOf(const EmbeddingTable& table, int64_t id) {
    const void* const row = table.Find(id);
    if (row == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(table.dim()));
    DecodeRow(table.format(), static_cast<const char*>(row), table.dim(), values.data());
    return values;
  }
  // Looks up all `ids` one by one and by pooling.
  static void Check(const EmbeddingTable& table, const TableContent& wanted,
                    const std::vector<int64_t>& ids) {
    const auto dim = static_cast<size_t>(table.dim());
    std::vector<float> pooled(ids.size() * dim, -1);
    const std::vector<int32_t> segments(ids.size(), 1);
    const PoolingOutput output{{.dim = table.dim()}, pooled.data(), table.dim()};
    std::vector<char> scratch(ids.size() * kPoolingScratchBytes);
    int64_t missing = 0, absent = 0;
    size_t failed = 0;
    const FeatureJob job{&table, {ids, nullptr, segments}, {&output, 1}, &missing};
    Pace pace;
    const absl::Status status = PoolFeatures({&job, 1}, scratch.data(), pace, &failed);
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = wanted.find(ids[i]);
      const std::vector<float> want = row == wanted.end() ? std::vector<float>() : row->second;
      absent += want.empty();
      ASSERT_EQ(RowOf(table, ids[i]), want) << ids[i];
      const std::vector<float> got(pooled.begin() + i * dim, pooled.begin() + (i + 1) * dim);
      ASSERT_EQ(got, want.empty() ? std::vector<float>(dim, 0) : want) << ids[i];
    }
    EXPECT_EQ(missing, absent);
  }

  TempDir dir_;
  int files_ = 0;
};

// Values that every format holds exactly: a row of int8 has a step of 1.
std::vector<float> RandomRow(std::mt19937& random) {
  std::vector<float> row(11);
  for (float& value : row) value = static_cast<float>(random() % 256);
  row[0] = 0;
  row[1] = 255;
  return row;
}

TEST_F(TableOverlayTest, AnyOrderOfPutsDropsAndFoldsGivesTheRowsOfAMap) {
  std::mt19937 random(5);
  std::vector<int64_t> ids = {0, 1, -1, INT64_MIN, INT64_MAX};
  for (int64_t id = 2; id < 300; ++id) ids.push_back(id);
  for (const RowFormat format :
       {RowFormat::kFp32, RowFormat::kFp16, RowFormat::kBf16, RowFormat::kInt8}) {
    TableContent wanted;
    for (const int64_t id : ids) {
      if (random() % 2 == 0) wanted[id] = RandomRow(random);
    }
    TablePtr table = *EmbeddingTable::Make("t", Rows(wanted, format), {});
    TablePtr before;
    for (int round = 0; round < 40; ++round) {
      TableContent put;
      std::vector<int64_t> drop;
      for (const int64_t id : ids) {
        const uint32_t draw = random() % 10;
        if (draw == 0) put[id] = wanted[id] = RandomRow(random);
        if (draw == 1 && wanted.erase(id) > 0) drop.push_back(id);
      }
      before = table;
      // Rows come in any format and are kept in that of the table.
      // After the last fold, deltas stay apart.
      const bool compact = round < 35 && random() % 4 == 0;
      table = Add(table, put, drop, static_cast<RowFormat>(random() % 4), compact);
      Check(*table, wanted, ids);
      if (round % 7 == 6)
        table = Fold(round % 2 == 0 || !before->overlay() ? table : before, table);
      Check(*table, wanted, ids);
    }
    const auto overlay = std::make_shared<TableOverlay>(*table->overlay());
    EXPECT_GT(overlay->rows(), overlay->ids());
    overlay->Compact();
    EXPECT_EQ(overlay->rows(), overlay->ids());
    Check(**table->With(table->base(), overlay), wanted, ids);
  }
}

TEST_F(TableOverlayTest, RowsThatWereReplacedAreGivenBack) {
  TablePtr table = *EmbeddingTable::Make("t", Rows({{1, {1, 2}}, {2, {3, 4}}}), {});
  for (float value = 0; value < 3; ++value) table = Add(table, {{2, {value, 0}}}, {});
  const auto overlay = std::make_shared<TableOverlay>(*table->overlay());
  EXPECT_EQ(overlay->rows(), 3u);
  overlay->Compact();
  EXPECT_EQ(overlay->rows(), 1u);
  EXPECT_EQ(overlay->rows_brought(), 3u);
  EXPECT_EQ(RowOf(**table->With(table->base(), overlay), 2), (std::vector<float>{2, 0}));
}

TEST_F(TableOverlayTest, AFoldOfAnEarlierOrLaterEpochLeavesTheRowsThatServe) {
  const TableContent base = {{1, {1, 0}}, {2, {2, 0}}, {3, {3, 0}}};
  const TablePtr table = *EmbeddingTable::Make("t", Rows(base), {});
  const TablePtr first = Add(table, {{1, {10, 0}}, {4, {40, 0}}}, {2});
  const TablePtr second = Add(first, {{1, {11, 0}}, {2, {20, 0}}}, {4});
  const std::vector<int64_t> ids = {1, 2, 3, 4};
  const TableContent then = {{1, {10, 0}}, {3, {3, 0}}, {4, {40, 0}}};
  const TableContent now = {{1, {11, 0}}, {2, {20, 0}}, {3, {3, 0}}};
  Check(*Fold(first, second), now, ids);
  Check(*Fold(second, first), then, ids);
  const TablePtr other = Add(table, {{1, {10, 0}}}, {});
  EXPECT_EQ(other->overlay()->Beyond(*first->overlay()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*TableOverlay().Beyond(TableOverlay()), nullptr);
}

TEST_F(TableOverlayTest, ADeltaThatContradictsItselfNamesTheId) {
  const TableContent base = {{1, {1, 2}}, {2, {3, 4}}};
  const auto fp16 = Rows(base, RowFormat::kFp16);
  const auto message = [&](const TableContent& put, std::vector<int64_t> drop) {
    const auto rows = Rows(put);
    return std::string(TableDelta::Make(rows.get(), std::move(drop), *fp16).status().message());
  };
  EXPECT_EQ(message({{5, {1, 1}}}, {7, 8, 7}), "id 7 is dropped twice");
  EXPECT_EQ(message({{5, {1, 1}}, {6, {1, 1}}}, {7, 6}), "id 6 is put and dropped");
  EXPECT_EQ(message({{5, {1, 1e6f}}}, {}), "id 5: a value is too large for fp16");
}

TEST_F(TableOverlayTest, WhatStandsInForMissingIds) {
  const TableContent base = {{1, {1, 2}}, {2, {3, 4}}};
  TablePtr table = *EmbeddingTable::Make(
      "t", Rows(base), {.missing_keys = MissingKeys::kDefaultRow, .default_id = 2});
  const auto stand_in = [](const EmbeddingTable& of) {
    const auto* const row = static_cast<const float*>(of.missing_row());
    return std::vector<float>(row, row + of.dim());
  };
  table = Add(table, {{2, {8, 9}}}, {1});
  EXPECT_EQ(stand_in(*table), (std::vector<float>{8, 9}));
  table = Fold(table, table);
  EXPECT_EQ(stand_in(*table), (std::vector<float>{8, 9}));
  auto overlay = std::make_shared<TableOverlay>();
  overlay->Add(*TableDelta::Make(nullptr, {2}, *table->base()));
  EXPECT_EQ(table->With(table->base(), overlay).status().message(), "lacks the default id 2");

  table = *EmbeddingTable::Make("t", Rows(base), {.missing_keys = MissingKeys::kMeanRow});
  table = Add(table, {{2, {8, 9}}}, {1});
  EXPECT_EQ(stand_in(*table), (std::vector<float>{2, 3}));
  table = Fold(table, table);
  EXPECT_EQ(stand_in(*table), (std::vector<float>{2, 3}));
}

TEST_F(TableOverlayTest, FoldingLeavesNoNameBehindAndRefusesToLoseEveryRow) {
  const TableContent base = {{1, {1, 2}}, {2, {3, 4}}};
  TablePtr table = *EmbeddingTable::Make("t", Rows(base), {});
  table = Add(table, {{3, {5, 6}}}, {1});
  const auto names = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  };
  const std::vector<std::string> before = names();
  const TablePtr folded = Fold(table, table);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(folded->overlay(), nullptr);
  EXPECT_EQ(folded->rows(), 2);
  EXPECT_GT(folded->mapped_bytes(), 0);

  table = Add(folded, {}, {2, 3});
  EXPECT_THAT(FoldTable(*table, dir_.path(), kMemory).status().message(), HasSubstr("no rows"));
  EXPECT_EQ(FoldTable(*table, dir_.File("none"), kMemory).status().code(),
            absl::StatusCode::kUnavailable);
}

// More than kMemory holds of one part of the table.
TEST_F(TableOverlayTest, FoldsRowsOfAnyLength) {
  TableContent base;
  for (int64_t id = 0; id < 3000; ++id) base[id] = std::vector<float>(600, static_cast<float>(id));
  TablePtr table = *EmbeddingTable::Make("t", Rows(base), {});
  table = Add(table, {{3, std::vector<float>(600, -1)}}, {1});
  const TablePtr folded = Fold(table, table);
  EXPECT_EQ(folded->rows(), 2999);
  EXPECT_EQ(RowOf(*folded, 3), std::vector<float>(600, -1));
  EXPECT_EQ(RowOf(*folded, 2999), std::vector<float>(600, 2999));
}

// Its rows are zeros then, of which many have the same id.
TEST_F(TableOverlayTest, FoldingATableFileThatWasCutSaysSo) {
  TableContent base;
  for (int64_t id = 1; id < 2000; ++id) base[id] = {1, 2};
  TablePtr table = *EmbeddingTable::Make("t", Rows(base), {});
  table = Add(table, {{3, {5, 6}}}, {1});
  std::filesystem::resize_file(dir_.File("rows1"), 12288);
  EXPECT_THAT(FoldTable(*table, dir_.path(), kMemory).status().message(),
              HasSubstr("rows1: byte 12288 cannot be read"));
}

}  // namespace
}  // namespace ulfd::engine
