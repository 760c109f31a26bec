// Every case of tests/data/layers: values against the float64 reference, errors and notices by
// their exact text.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/layers/registry.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/layer_case.h"
#include "tests/testing/paths.h"

namespace ulfd::testing {
namespace {

// Type (the file's name) -> cases.
std::map<std::string, LayerCases> AllCases() {
  std::map<std::string, LayerCases> all;
  for (const auto& file : std::filesystem::directory_iterator(TestData() + "/layers")) {
    auto cases = ReadLayerCases(file.path().string());
    EXPECT_TRUE(cases.ok()) << cases.status();
    if (cases.ok()) all[file.path().stem().string()] = *std::move(cases);
  }
  return all;
}

void Check(const LayerCase& layer_case, Placement placement, Route route = Route::kOwn) {
  SCOPED_TRACE(layer_case.name());
  const absl::StatusOr<LayerOutcome> outcome = RunLayerCase(layer_case, placement, route);
  if (!layer_case.error().empty()) {
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(outcome.status().message()), layer_case.error());
    return;
  }
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(outcome->notices, ::testing::ElementsAreArray(layer_case.notices()));
  ASSERT_EQ(outcome->outputs.size(), static_cast<size_t>(layer_case.outputs_size()));
  for (int i = 0; i < layer_case.outputs_size(); ++i) {
    EXPECT_EQ(Difference(layer_case, i, outcome->outputs[i].tensor), "") << "output " << i;
  }
}

class LayerCasesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LayerCasesTest, AgreesWithTheReference) {
  engine::UseOneThread();
  auto cases = ReadLayerCases(TestData() + "/layers/" + GetParam() + ".textproto");
  ASSERT_TRUE(cases.ok()) << cases.status();
  for (const LayerCase& layer_case : cases->cases()) {
    for (const Placement placement : {Placement::kAligned, Placement::kOddAddress}) {
      Check(layer_case, placement);
    }
  }
}

// Layers with a kernel of their own that also lower to others: the same values and errors both
// ways.
TEST(DecomposableLayers, AgreeWithTheReferenceBothWays) {
  engine::UseOneThread();
  int types = 0;
  for (const engine::LayerType* type : engine::AllLayerTypes()) {
    if (!type->decomposable) continue;
    ++types;
    auto cases = ReadLayerCases(absl::StrCat(TestData() + "/layers/", type->name, ".textproto"));
    ASSERT_TRUE(cases.ok()) << cases.status();
    for (const LayerCase& layer_case : cases->cases()) {
      Check(layer_case, Placement::kAligned, Route::kDecomposed);
    }
  }
  EXPECT_GE(types, 2);
}

std::vector<std::string> TypeNames() {
  std::vector<std::string> names;
  for (const engine::LayerType* type : engine::AllLayerTypes()) names.emplace_back(type->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Types, LayerCasesTest, ::testing::ValuesIn(TypeNames()),
                         [](const auto& info) { return info.param; });

TEST(LayerCaseFiles, EveryTypeHasAGoodAndABadCase) {
  const std::map<std::string, LayerCases> all = AllCases();
  EXPECT_EQ(all.size(), engine::AllLayerTypes().size());
  for (const std::string& type : TypeNames()) {
    ASSERT_TRUE(all.contains(type)) << type;
    const auto& cases = all.at(type).cases();
    const auto bad = [](const LayerCase& c) { return !c.error().empty(); };
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), bad)) << type;
    EXPECT_FALSE(std::all_of(cases.begin(), cases.end(), bad)) << type;
  }
}

// The comparison itself must be able to fail.
TEST(LayerCaseFiles, AWrongValueIsFound) {
  engine::UseOneThread();
  auto cases = ReadLayerCases(TestData() + "/layers/relu_layer.textproto");
  ASSERT_TRUE(cases.ok()) << cases.status();
  LayerCase layer_case = cases->cases(0);
  auto outcome = RunLayerCase(layer_case, Placement::kAligned);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(Difference(layer_case, 0, outcome->outputs[0].tensor), "");
  layer_case.mutable_outputs(0)->set_values(0, layer_case.outputs(0).values(0) + 1e-4);
  EXPECT_NE(Difference(layer_case, 0, outcome->outputs[0].tensor), "");
}

}  // namespace
}  // namespace ulfd::testing
