// Arrays become inputs only where no value changes, but for rounding to float32.
// SPDX-License-Identifier: Apache-2.0
#include "tools/model/npz_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace ulfd::tools {
namespace {

using engine::DType;
using engine::NpyArray;
using engine::NumberType;
using ::testing::ElementsAre;

NpyArray Doubles(const std::vector<double>& values) {
  NpyArray array;
  array.type = NumberType::kFloat64;
  array.dims = {static_cast<int64_t>(values.size())};
  if (values.empty()) return array;  // memcpy may not be given its null.
  array.bytes.resize(values.size() * sizeof(double));
  std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
  return array;
}

NpyArray Ints(const std::vector<int64_t>& values) {
  return NpyArray::FromInt64({static_cast<int64_t>(values.size())}, values.data());
}

std::string ErrorOf(NpyArray array, DType wanted) {
  const auto converted = ConvertInput("x", std::move(array), wanted);
  EXPECT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(converted.status().message());
}

TEST(ConvertInputTest, RoundsDoublesToFloats) {
  const auto array = ConvertInput("x", Doubles({0.1, -2}), DType::kFloat32);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->type, NumberType::kFloat32);
  EXPECT_THAT(array->dims, ElementsAre(2));
  EXPECT_THAT(array->ToFloat32(), ElementsAre(0.1f, -2.0f));
}

TEST(ConvertInputTest, NarrowsIntegersThatFit) {
  const auto array = ConvertInput("x", Ints({1, -5}), DType::kInt32);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->type, NumberType::kInt32);
  EXPECT_THAT(array->ToInt64(), ElementsAre(1, -5));
}

TEST(ConvertInputTest, TakesWholeDoublesAsIds) {
  const auto array = ConvertInput("x", Doubles({1e15, -3}), DType::kInt64);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->ToInt64(), ElementsAre(1000000000000000, -3));
}

TEST(ConvertInputTest, LeavesEmptyArraysEmpty) {
  const auto array = ConvertInput("x", Doubles({}), DType::kInt32);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->dims, ElementsAre(0));
}

TEST(ConvertInputTest, NamesTheElementThatDoesNotFit) {
  EXPECT_EQ(ErrorOf(Doubles({1, 1.5}), DType::kInt64),
            "input \"x\": element 1 is 1.5, which is no int64");
  NpyArray past = Ints({7, -1});
  past.type = NumberType::kUint64;
  EXPECT_EQ(ErrorOf(past, DType::kInt64),
            "input \"x\": element 1 is 18446744073709551615, which is no int64");
  EXPECT_EQ(ErrorOf(Ints({0, 1LL << 32}), DType::kInt32),
            "input \"x\": element 1 is 4294967296, which is no int32");
  EXPECT_EQ(ErrorOf(Doubles({std::nan("")}), DType::kInt32),
            "input \"x\": element 0 is nan, which is no int32");
  EXPECT_EQ(ErrorOf(Doubles({1e300}), DType::kFloat32),
            "input \"x\": element 0 is 1e+300, which is no float32");
  EXPECT_EQ(ErrorOf(Ints({(1LL << 24) + 1}), DType::kFloat32),
            "input \"x\": element 0 is 16777217, which is no float32");
  EXPECT_EQ(ErrorOf(Ints({INT64_MAX}), DType::kFloat32),
            "input \"x\": element 0 is 9223372036854775807, which is no float32");
}

TEST(CheckInputNamesTest, NamesEveryUnknownArray) {
  const engine::NpzArrays arrays = {{"a", Ints({})}, {"b", Ints({})}, {"c", Ints({})}};
  EXPECT_TRUE(CheckInputNames(arrays, {"c", "b", "a", "unused"}).ok());
  EXPECT_EQ(CheckInputNames(arrays, {"b", "d"}).message(),
            "the model has no input \"a\", \"c\"; it has \"b\", \"d\"");
}

TEST(SplitMatrixTest, LeavesPaddingOut) {
  const int64_t values[] = {0, 7, 8, 5, 9, 0, 0, 6};
  // All of it, and three of its columns.
  for (const bool whole : {true, false}) {
    const std::vector<MatrixPart> parts = {
        {.name = "mid",
         .sparse = true,
         .padding = 0,
         .columns = whole ? std::vector<int64_t>() : std::vector<int64_t>{0, 1, 2}}};
    engine::NpzArrays arrays = {{"all", NpyArray::FromInt64({2, 4}, values)}};
    if (whole) {
      EXPECT_EQ(
          SplitMatrix("all", 0, parts, arrays).message(),
          "input \"all\": row 1: the padding id 0 between ids, want it before or behind them");
      arrays = {{"all", NpyArray::FromInt64({2, 3}, values)}};
      ASSERT_TRUE(SplitMatrix("all", 0, parts, arrays).ok());
      EXPECT_THAT(arrays.at("mid.ids").ToInt64(), ::testing::ElementsAre(7, 8, 5, 9));
      EXPECT_THAT(arrays.at("mid.segments").ToInt64(), ::testing::ElementsAre(2, 2));
      arrays = {{"all", NpyArray::FromInt64({2, 1, 3}, values)}};
      EXPECT_EQ(SplitMatrix("all", 0, parts, arrays).message(),
                "input \"all\": 3 dimensions, want [rows, ids] or [rows]");
    } else {
      ASSERT_TRUE(SplitMatrix("all", 4, parts, arrays).ok());
      EXPECT_THAT(arrays.at("mid.ids").ToInt64(), ::testing::ElementsAre(7, 8, 9));
      EXPECT_THAT(arrays.at("mid.segments").ToInt64(), ::testing::ElementsAre(2, 1));
    }
  }
}

TEST(SplitMatrixTest, HasIdsAndNumbers) {
  const std::vector<MatrixPart> parts = {{.name = "mid", .sparse = true, .columns = {2, 0}},
                                         {.name = "x", .columns = {1, 3}, .row_shape = {2, 1}}};
  const float values[] = {7, 0.5f, 8, 1.5f, 9, -1, 10, 2};
  engine::NpzArrays arrays = {{"all", NpyArray::FromFloat32({2, 4}, values)}};
  ASSERT_TRUE(SplitMatrix("all", 4, parts, arrays).ok());
  EXPECT_EQ(arrays.size(), 3u);
  EXPECT_THAT(arrays.at("mid.ids").ToInt64(), ::testing::ElementsAre(8, 7, 10, 9));
  EXPECT_THAT(arrays.at("mid.segments").ToInt64(), ::testing::ElementsAre(2, 2));
  EXPECT_THAT(arrays.at("x").ToFloat32(), ::testing::ElementsAre(0.5f, 1.5f, -1, 2));
  EXPECT_THAT(arrays.at("x").dims, ::testing::ElementsAre(2, 2, 1));
  arrays.emplace("all", NpyArray::FromFloat32({2, 4}, values));
  EXPECT_EQ(SplitMatrix("all", 4, parts, arrays).message(),
            "inputs \"all\" and \"mid.ids\": want one of the two");
  arrays = {{"all", NpyArray::FromFloat32({8}, values)}};
  EXPECT_EQ(SplitMatrix("all", 4, parts, arrays).message(),
            "input \"all\": shape [8], want 4 values in each row");
}

// Of the user: "age" [users, 3] and the sparse "hist"; of the ads: "price" and the sparse "item".
engine::ModelInfo UserAndAds() {
  using engine::Dim;
  using engine::Level;
  engine::ModelInfo info;
  const auto dense = [&](const char* name, Level level, Dim rows, int64_t width) {
    engine::InputInfo& input = info.inputs.emplace_back();
    input.name = name;
    input.level = level;
    input.shape = engine::Shape({rows, Dim::Of(width)});
    input.stated = input.shape_stated = input.used = true;
  };
  const auto sparse = [&](const std::string& name, Level level) {
    engine::FeatureInfo& feature = info.features.emplace_back();
    feature.name = name;
    feature.level = level;
    feature.ids = static_cast<int>(info.inputs.size());
    feature.values = feature.ids + 1;
    feature.segments = feature.ids + 2;
    const std::pair<const char*, DType> parts[] = {
        {".ids", DType::kInt64}, {".values", DType::kFloat32}, {".segments", DType::kInt32}};
    for (const auto& [suffix, dtype] : parts) {
      engine::InputInfo& input = info.inputs.emplace_back();
      input.name = name + suffix;
      input.dtype = dtype;
      input.level = level;
      input.feature = static_cast<int>(info.features.size()) - 1;
    }
  };
  dense("age", Level::kUser, Dim::Users(), 3);
  dense("price", Level::kAd, Dim::Ads(), 1);
  sparse("hist", Level::kUser);
  sparse("item", Level::kAd);
  return info;
}

NpyArray Floats(std::vector<int64_t> dims, const std::vector<float>& values) {
  return NpyArray::FromFloat32(std::move(dims), values.data());
}

std::string RowsErrorOf(engine::NpzArrays arrays) {
  const auto converted = ConvertInputs(std::move(arrays), UserAndAds());
  return std::string(converted.status().message());
}

TEST(ConvertInputsTest, TakesTheUsersRowOnceHoweverItComes) {
  const engine::NpzArrays sent[] = {
      {{"age", Floats({1, 3}, {1, 2, 3})}, {"hist.ids", Ints({7, 8})}, {"item.ids", Ints({1, 2})}},
      {{"age", Floats({3}, {1, 2, 3})}, {"hist.ids", Ints({7, 8})}, {"item.ids", Ints({1, 2})}},
      {{"age", Floats({2, 3}, {1, 2, 3, 1, 2, 3})},
       {"hist.ids", Ints({7, 8, 7, 8})},
       {"hist.segments", Ints({2, 2})},
       {"hist.values", Floats({4}, {1, 5, 1, 5})},
       {"item.ids", Ints({1, 2})}}};
  for (const engine::NpzArrays& arrays : sent) {
    const auto converted = ConvertInputs(arrays, UserAndAds());
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_THAT(converted->at("age").dims, ElementsAre(1, 3));
    EXPECT_THAT(converted->at("age").ToFloat32(), ElementsAre(1, 2, 3));
    EXPECT_THAT(converted->at("hist.ids").ToInt64(), ElementsAre(7, 8));
    EXPECT_THAT(converted->at("item.ids").ToInt64(), ElementsAre(1, 2));
  }
}

TEST(ConvertInputsTest, NamesTheInputWhoseRowsAreNotAsManyAsTheOthers) {
  EXPECT_EQ(RowsErrorOf({{"price", Floats({3}, {1, 2, 3})}, {"item.ids", Ints({1, 2})}}),
            "input \"price\": 3 rows, but input \"item.ids\" has 2: every ad input has one row "
            "per ad");
  EXPECT_EQ(RowsErrorOf({{"hist.ids", Ints({7, 8, 9})},
                         {"hist.segments", Ints({1, 1, 1})},
                         {"item.ids", Ints({1, 2})}}),
            "input \"hist.segments\": 3 rows, want 1: it belongs to the user");
  EXPECT_EQ(RowsErrorOf({{"hist.ids", Ints({7, 8})},
                         {"hist.segments", Ints({1, 1})},
                         {"item.ids", Ints({1, 2})}}),
            "input \"hist.ids\": 2 rows, of which row 1 is not like the first, want 1: it belongs "
            "to the user");
  EXPECT_EQ(RowsErrorOf({{"hist.ids", Ints({7, 8})}, {"hist.values", Floats({1}, {1})}}),
            "input \"hist.values\": 1 values, want 2, the length of \"hist.ids\"");
  EXPECT_EQ(RowsErrorOf({{"hist.ids", Ints({7, 8})}, {"hist.segments", Ints({1})}}),
            "input \"hist.segments\": counts sum to 1, want 2, the number of ids");
  EXPECT_EQ(RowsErrorOf({{"age", Floats({0, 3}, {})}, {"price", Floats({0, 1}, {})}}),
            "input \"age\": 0 rows, want 1: it belongs to the user");
}

}  // namespace
}  // namespace ulfd::tools
