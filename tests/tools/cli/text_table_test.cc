// Columns, numbers and sizes as people read them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/text_table.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace ulfd::tools {
namespace {

TEST(TextTableTest, AlignsColumnsWithoutTrailingBlanks) {
  TextTable table({"name", "rows>", "note"});
  EXPECT_TRUE(table.empty());
  table.AddRow({"a", "1,000", ""});
  table.AddRow({"longer", "7", "x"});
  EXPECT_EQ(table.ToString(),
            "  name     rows  note\n"
            "  a       1,000\n"
            "  longer      7  x\n");
}

TEST(TextTableTest, CountsCharactersNotBytes) {
  TextTable table({"name", "rows>"});
  table.AddRow({"модель", "1"});
  table.AddRow({"abcdef", "2"});
  EXPECT_EQ(table.ToString(),
            "  name    rows\n"
            "  модель     1\n"
            "  abcdef     2\n");
}

TEST(TextTableTest, OneCellDoesNotWidenEveryRowWithoutEnd) {
  TextTable table({"name" + std::string(100'000, 'h'), "rows>"});
  table.AddRow({std::string(100'000, 'x'), "1"});
  for (int i = 0; i < 9; ++i) table.AddRow({"y", std::string(100'000, '2')});
  EXPECT_LT(table.ToString().size(), 100'000);
}

TEST(WithCommasTest, GroupsDigits) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(-123456), "-123,456");
  EXPECT_EQ(WithCommas(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(HumanNumberTest, KeepsThreeDigits) {
  EXPECT_EQ(HumanNumber(0), "0");
  EXPECT_EQ(HumanNumber(999), "999");
  EXPECT_EQ(HumanNumber(999.6), "1.00 k");
  EXPECT_EQ(HumanNumber(12345), "12.3 k");
  EXPECT_EQ(HumanNumber(-20.6e6), "-20.6 M");
  EXPECT_EQ(HumanNumber(999.7e6), "1.00 G");
  EXPECT_EQ(HumanNumber(123.4e9), "123 G");
}

TEST(HumanBytesTest, PicksTheUnit) {
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(int64_t{15} << 30), "15.0 GiB");
}

TEST(ClippedTest, CutsBetweenCharacters) {
  EXPECT_EQ(Clipped("abcdefgh", 8), "abcdefgh");
  EXPECT_EQ(Clipped("abcdefghi", 8), "abcde...");
  EXPECT_EQ(Clipped("модель", 8), "мо...");
}

}  // namespace
}  // namespace ulfd::tools
