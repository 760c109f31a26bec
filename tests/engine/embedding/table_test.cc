// EmbeddingTable and its index: what the parser accepts, where it points when it does not, lookups
// at scale.
// SPDX-License-Identifier: Apache-2.0
#include "engine/embedding/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/broken_files.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TableTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<const EmbeddingTable>> Load(absl::string_view content,
                                                             const TableOptions& options = {}) {
    return EmbeddingTable::LoadText("t", dir_.Write("t", content), options);
  }
  // The error's text after the directory, or "ok".
  std::string Error(absl::string_view content, const TableOptions& options = {}) {
    const absl::Status status = Load(content, options).status();
    if (status.ok()) return "ok";
    EXPECT_EQ(status.message().substr(0, dir_.path().size()), dir_.path());
    return std::string(status.message().substr(dir_.path().size() + 1));
  }
  static std::vector<float> Row(const EmbeddingTable& table, int64_t id) {
    const auto* row = static_cast<const float*>(table.Find(id));
    return row == nullptr ? std::vector<float>() : std::vector<float>(row, row + table.dim());
  }
  TempDir dir_;
};

TEST_F(TableTest, ReadsRowsOfAnyId) {
  const auto table = Load(
      "7,1,2\n0,10,20\n-3,100,200\n9223372036854775807,3,4\n-9223372036854775808,5,6\n-1,7,8\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->name(), "t");
  EXPECT_EQ((*table)->rows(), 6);
  EXPECT_EQ((*table)->dim(), 2);
  EXPECT_THAT(Row(**table, 7), ElementsAre(1, 2));
  EXPECT_THAT(Row(**table, 0), ElementsAre(10, 20));
  EXPECT_THAT(Row(**table, -3), ElementsAre(100, 200));
  EXPECT_THAT(Row(**table, std::numeric_limits<int64_t>::max()), ElementsAre(3, 4));
  EXPECT_THAT(Row(**table, std::numeric_limits<int64_t>::min()), ElementsAre(5, 6));
  EXPECT_THAT(Row(**table, -1), ElementsAre(7, 8));
  for (const int64_t absent : {1, 2, -2, 8}) {
    EXPECT_EQ((*table)->Find(absent), nullptr);
  }
  EXPECT_EQ((*table)->missing_row(), nullptr);
}

TEST_F(TableTest, ATableWithoutTheId0LacksIt) {
  EXPECT_EQ((*Load("5,1\n"))->Find(0), nullptr);  // Unused slots of the index hold zeros.
}

TEST_F(TableTest, AcceptsWhatPrintfAndPythonWrite) {
  const auto table = Load(
      "1,0.1,-0.000000,1e-05,-1.5E+3\r\n"
      "2,+2.5,.5,5.,1e-50\r\n"
      "+3,3.4028234663852886e+38,1.1754943508222875e-38,1e-45,-7");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(Row(**table, 1), ElementsAre(0.1f, 0, 1e-05f, -1500));
  EXPECT_THAT(Row(**table, 2), ElementsAre(2.5f, 0.5f, 5, 0));
  EXPECT_THAT(Row(**table, 3), ElementsAre(std::numeric_limits<float>::max(),
                                           std::numeric_limits<float>::min(), 1e-45f, -7));
}

// Every way of writing a number is rounded once, as strtof does.
TEST_F(TableTest, RoundsExactly) {
  std::vector<std::string> numbers = {"16777217",
                                      "16777219",
                                      "16777216.999999999",
                                      "0.1000000014901161193",
                                      "-0.000000",
                                      "16777217.0",
                                      "1.00000006",
                                      "1.000000059604644",
                                      "1.0000000596046448",
                                      "0.0000000000001",
                                      "1.1754942e-38",
                                      "0.99999997",
                                      "9007199254740993",
                                      "340282350000000000000000000000000000000",
                                      "00000000000000000000000001.5",
                                      "123456789.125"};
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto digits = random() >> (random() % 64);
    std::string text = absl::StrCat(digits);
    if (text.size() > 1) text.insert(random() % text.size(), ".");
    numbers.push_back(text);
    // Halfway between two floats, and just beside.
    const auto mantissa = ((random() % (1 << 23)) + (1 << 23)) * 2 + 1;
    const int shift = static_cast<int>(random() % 20);
    char exact[64];
    std::snprintf(exact, sizeof exact, "%.*f", shift,
                  static_cast<double>(mantissa) / static_cast<double>(int64_t{1} << shift));
    numbers.push_back(exact);
    numbers.push_back(absl::StrCat(exact, shift == 0 ? ".0001" : "001"));
  }
  std::string content;
  for (size_t i = 0; i < numbers.size(); ++i) absl::StrAppend(&content, i, ",", numbers[i], "\n");
  const auto table = Load(content);
  ASSERT_TRUE(table.ok()) << table.status();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float want = std::strtof(numbers[i].c_str(), nullptr);
    const float got = *static_cast<const float*>((*table)->Find(static_cast<int64_t>(i)));
    ASSERT_EQ(std::memcmp(&got, &want, sizeof want), 0) << numbers[i] << " gave " << got;
  }
}

TEST_F(TableTest, AcceptsEmptyLinesOnlyAtTheEnd) {
  EXPECT_EQ((*Load("1,2\n3,4\n\n"))->rows(), 2);
  EXPECT_EQ((*Load("1,2\r\n3,4\r\n\r\n\n"))->rows(), 2);
  EXPECT_EQ(Error("1,2\n\n\n3,4\n"), "t:2: empty line");
}

TEST_F(TableTest, RefusesFilesWithoutRows) {
  EXPECT_EQ(Error(""), "t: no rows, want at least one (0 lines skipped)");
  EXPECT_EQ(Error("\n\n"), "t: no rows, want at least one (0 lines skipped)");
  EXPECT_EQ(Error("x,1\ny,2\n", {.skip_bad_lines = true}),
            "t: no rows, want at least one (2 lines skipped)");
  EXPECT_EQ(EmbeddingTable::LoadText("t", dir_.File("none"), {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(EmbeddingTable::LoadText("t", dir_.path(), {}).status().message(),
            dir_.path() + ": not a regular file");
}

TEST_F(TableTest, RefusesBadLinesWithFileAndLine) {
  EXPECT_EQ(Error("7,1,2\n8,5\n"), "t:2: 1 values, want 2");
  EXPECT_EQ(Error("7,1,2\n8,5,6,7\n"), "t:2: 3 values, want 2");
  EXPECT_EQ(Error("7,1,2\n8,5,\n"), "t:2: value 1 \"\" is not a finite float32 number");
  EXPECT_EQ(Error("7,1,2\n8\n"), "t:2: 0 values, want 2");
  EXPECT_EQ(Error("7\n"), "t:1: no values, want at least one");
  EXPECT_EQ(Error("7,1,2\n8,x,2\n"), "t:2: value 0 \"x\" is not a finite float32 number");
  for (const char* bad : {"nan", "inf", "-inf", "1e39", "-1e400", " 1", "1 ", "0x10", "1.5.2", "+",
                          "-", "+-1", "++1", "1e", "1\t", "--1", "1,5"}) {
    EXPECT_THAT(Error(absl::StrCat("7,1,2\n8,1,", bad, "\n")), HasSubstr("t:2: ")) << bad;
  }
  EXPECT_EQ(Error("7,1\nz,1\n"), "t:2: id \"z\" is not a 64-bit integer");
  EXPECT_EQ(Error("7,1\n9223372036854775808,1\n"),
            "t:2: id \"9223372036854775808\" is not a 64-bit integer");
  EXPECT_EQ(Error("7,1\n1.0,1\n"), "t:2: id \"1.0\" is not a 64-bit integer");
  EXPECT_EQ(Error("7,1\n,1\n"), "t:2: id \"\" is not a 64-bit integer");
  EXPECT_EQ(Error("7,1\n8,1\n9,1\n8,1\n"), "t:4: id 8 occurs twice, first on line 2");
  EXPECT_EQ(Error(std::string("7,1\n8,\0\n", 8)),
            "t:2: value 0 \"\\x00\" is not a finite float32 number");
}

TEST_F(TableTest, SkipsAndCountsBadLinesWhenTold) {
  const auto table =
      Load("x\n\n7,1,2\n8,5\n9,x,1\n7,3,4\n\n\nz,1,1\n10,3,4\n\n", {.skip_bad_lines = true});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->rows(), 2);
  EXPECT_EQ((*table)->skipped_lines(), 8);
  EXPECT_THAT(Row(**table, 7), ElementsAre(1, 2));  // The first of two stays.
  EXPECT_THAT(Row(**table, 10), ElementsAre(3, 4));
  EXPECT_EQ((*table)->Find(9), nullptr);
}

TEST_F(TableTest, RefusesEndlessLines) {
  EXPECT_EQ(Error("1,2\n" + std::string(6 << 20, '1')), "t:2: line of more than 1048576 bytes");
}

TEST_F(TableTest, ADefaultRowMustExist) {
  const TableOptions options{.missing_keys = MissingKeys::kDefaultRow, .default_id = 8};
  const auto table = Load("7,1\n8,2\n", options);
  EXPECT_EQ((*table)->missing_row(), (*table)->Find(8));
  EXPECT_EQ(Error("7,1\n", options), "t: lacks the default id 8");
}

TEST_F(TableTest, LargeTablesKeepEveryRowAndLittleMemory) {
  // Lines that become longer, so that the first guess of the number of rows is wrong, across many
  // chunks.
  constexpr int64_t kRows = 300000;
  std::string content;
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t id = i < kRows / 2 ? i : i * 1000003 - (int64_t{1} << 50);
    absl::StrAppend(&content, id, ",", i, i % 3 == 0 ? ".25" : ".2500000000", ",", -i, "\n");
  }
  ASSERT_GT(content.size(), size_t{8} << 20);
  const auto table = Load(content);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ((*table)->rows(), kRows);
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t id = i < kRows / 2 ? i : i * 1000003 - (int64_t{1} << 50);
    const auto* row = static_cast<const float*>((*table)->Find(id));
    ASSERT_NE(row, nullptr) << id;
    ASSERT_EQ(row[0], static_cast<float>(i) + 0.25f);
    ASSERT_EQ(row[1], static_cast<float>(-i));
    ASSERT_EQ((*table)->Find(-1 - i), nullptr);
  }
  // 16 bytes per slot, 1.09 slots and 0.35 bytes of index per row.
  EXPECT_LT((*table)->bytes(), kRows * 18);
  // A duplicate is found wherever it stands.
  EXPECT_EQ(Error(content + "149999,1,1\n"),
            absl::StrCat("t:", kRows + 1, ": id 149999 occurs twice, first on line 150000"));
}

TEST_F(TableTest, SurvivesDamage) {
  const std::string good = "7,0.125,-2\n-8,1e-05,20\r\n9,100,2.00\n";
  const auto read = [this](const std::string& bad) {
    for (const bool skip : {false, true}) {
      const auto table = Load(bad, {.skip_bad_lines = skip});
      if (!table.ok()) continue;
      for (const int64_t id : {7, -8, 9, 0}) {
        for (const float value : Row(**table, id)) EXPECT_TRUE(std::isfinite(value));
      }
    }
  };
  ForEachPrefix(good, read);
  ForEachDamage(good, 3000, read);
}

TEST_F(TableTest, ReadsTheExportsOfRealModels) {
  const std::string models = absl::StrCat(::ulfd::testing::SharedDir(), "/models");
  if (!std::filesystem::exists(models)) GTEST_SKIP() << "no " << models;
  for (const char* file : {"din/1/mid_embedding", "din/1/uid_embedding", "tdm_dnn/1/item_emb"}) {
    const auto table = EmbeddingTable::LoadText("t", absl::StrCat(models, "/", file), {});
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_GT((*table)->rows(), 50) << file;
  }
}

}  // namespace
}  // namespace ulfd::engine
