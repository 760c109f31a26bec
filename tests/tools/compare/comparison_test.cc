// `ulf compare`.
// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/comparison.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/weights/npz.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "tools/cli/commands.h"

namespace ulfd::tools {
namespace {

using engine::NpyArray;
using engine::NpzArrays;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

NpyArray Vector(const std::vector<float>& values) {
  return NpyArray::FromFloat32({static_cast<int64_t>(values.size())}, values.data());
}

TEST(Compare, MeasuresEachTensor) {
  const NpzArrays a = {{"x", Vector({1, 2, 0})}, {"y", Vector({100, -100})}};
  const NpzArrays b = {{"x", Vector({1, 2.5f, 0})}, {"y", Vector({100.0001f, -100})}};
  const Comparison comparison = Compare(a, b, {}, 1e-5);
  ASSERT_EQ(comparison.tensors.size(), 2u);
  EXPECT_EQ(comparison.tensors[0].name, "x");
  EXPECT_DOUBLE_EQ(comparison.tensors[0].max_abs, 0.5);
  EXPECT_DOUBLE_EQ(comparison.tensors[0].max_rel, 0.25);
  EXPECT_NEAR(comparison.tensors[0].cosine, 6 / std::sqrt(5.0) / std::sqrt(7.25), 1e-12);
  EXPECT_FALSE(comparison.tensors[0].within);
  EXPECT_TRUE(comparison.tensors[1].within);  // 1e-4 of 100.
  EXPECT_EQ(comparison.first_beyond, 0);
}

TEST(Compare, TheFirstThatDiffersIsTheFirstOfTheGraph) {
  const NpzArrays a = {{"a", Vector({1})}, {"b", Vector({1})}, {"c", Vector({1})}};
  const NpzArrays b = {{"a", Vector({2})}, {"b", Vector({1})}, {"c", Vector({2})}};
  const Comparison comparison = Compare(a, b, {"c", "b", "a", "unknown"}, 1e-5);
  ASSERT_EQ(comparison.tensors.size(), 3u);
  EXPECT_EQ(comparison.tensors[0].name, "c");
  EXPECT_EQ(comparison.first_beyond, 0);
  EXPECT_THAT(ToText(comparison, 1e-5), HasSubstr("first tensor to differ: c\n"));
}

TEST(Compare, LongNamesAreCut) {
  const std::string name(1'000'000, 'n');
  const Comparison comparison =
      Compare({{name, Vector({1})}}, {{name, Vector({2})}, {name + "b", Vector({1})}}, {}, 1);
  EXPECT_LT(ToText(comparison, 0.5).size(), 20000);
}

TEST(Compare, MissingTensorsAndShapesDiffer) {
  const NpzArrays a = {{"x", Vector({1})}, {"y", Vector({1, 2})}};
  const NpzArrays b = {{"y", Vector({1, 2, 3})}, {"z", Vector({1})}};
  const Comparison comparison = Compare(a, b, {}, 1);
  EXPECT_EQ(comparison.tensors[0].problem, "missing in B");
  EXPECT_EQ(comparison.tensors[1].problem, "shape [2] against [3]");
  EXPECT_THAT(comparison.only_in_b, ElementsAre("z"));
  EXPECT_EQ(comparison.first_beyond, 0);
}

TEST(Compare, NanAndInfinityAgreeOnlyWithThemselves) {
  const float inf = std::numeric_limits<float>::infinity(), nan = NAN;
  const NpzArrays a = {{"x", Vector({nan, inf, -inf})}};
  EXPECT_EQ(Compare(a, a, {}, 0).first_beyond, -1);
  for (const auto& other :
       {Vector({1, inf, -inf}), Vector({nan, -inf, -inf}), Vector({nan, inf, 3})}) {
    const Comparison comparison = Compare(a, {{"x", other}}, {}, 1e9);
    EXPECT_EQ(comparison.first_beyond, 0);
    EXPECT_TRUE(std::isinf(comparison.tensors[0].max_abs));
  }
}

TEST(CompareCommand, FailsBeyondTheTolerance) {
  const TempDir directory;
  ASSERT_TRUE(engine::WriteNpz(directory.File("a.npz"), {{"x", Vector({1})}}).ok());
  ASSERT_TRUE(engine::WriteNpz(directory.File("b.npz"), {{"x", Vector({1.01f})}}).ok());
  const std::vector<std::string> files = {directory.File("a.npz"), directory.File("b.npz")};
  const absl::Status status = RunCompare(files);
  EXPECT_EQ(std::string(status.message()), "x: not within 1e-05");
  std::vector<std::string> wide = files;
  wide.push_back("--tolerance=0.1");
  EXPECT_TRUE(RunCompare(wide).ok());
  EXPECT_TRUE(IsUsageError(RunCompare({files.data(), 1})));
}

TEST(CompareCommand, AdsAreRankedByAnOutputOfAds) {
  const TempDir dir;
  std::filesystem::create_directories(dir.File("m/1"));
  dir.Write("m/1/graph_ulf.txt", R"(
      layer_params { type: "input_layer" top: "u" top: "x" }
      layer_params { name: "vec" type: "relu_layer" bottom: "u" top: "vec" }
      layer_params { name: "score" type: "relu_layer" bottom: "x" top: "score" })");
  dir.Write("m/1/weights.pb", "");
  dir.Write("m/1/model.textproto", R"(
      inputs { name: "u" level: INPUT_LEVEL_USER row_shape: 1 }
      inputs { name: "x" level: INPUT_LEVEL_AD row_shape: 1 })");
  const float values[] = {1, 2, 3};
  ASSERT_TRUE(engine::WriteNpz(dir.File("in.npz"), {{"u", NpyArray::FromFloat32({1, 1}, values)},
                                                    {"x", NpyArray::FromFloat32({3, 1}, values)}})
                  .ok());
  const std::string version = dir.File("m/1");
  const std::string requests = absl::StrCat(dir.File("in.npz"), ",", dir.File("in.npz"));
  const std::vector<std::string> args = {version, version, "--requests=" + requests};
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunCompare(args);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("2 requests, 6 ads"));
}

}  // namespace
}  // namespace ulfd::tools
