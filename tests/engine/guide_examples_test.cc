// Every example of the published layer guide (beside the checkout) loads, in a graph that declares
// its bottoms and with weights where its type wants some.  Two cannot: div names one bottom, and
// embedding names "input0" where three inputs per feature belong (it is tried with those).
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/runtime/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string GuideText() {
  if (!fs::exists(ULFD_SHARED "/seeds")) return "";
  for (const auto& entry : fs::directory_iterator(ULFD_SHARED "/seeds")) {
    if (!absl::StartsWith(entry.path().filename().string(), "000")) continue;
    std::ifstream file(entry.path());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  return "";
}

// The fenced blocks of the guide.
std::vector<std::string> Examples(const std::string& guide) {
  std::vector<std::string> examples;
  const std::string fence = "```";
  for (size_t at = guide.find(fence); at != std::string::npos; at = guide.find(fence, at)) {
    const size_t begin = at + fence.size(), end = guide.find(fence, begin);
    if (end == std::string::npos) break;
    examples.push_back(guide.substr(begin, end - begin));
    at = end + fence.size();
  }
  return examples;
}

std::set<std::string> Bottoms(const std::string& example) {
  std::set<std::string> bottoms;
  const std::string key = "bottom: \"";
  for (size_t at = example.find(key); at != std::string::npos; at = example.find(key, at)) {
    at += key.size();
    bottoms.insert(example.substr(at, example.find('"', at) - at));
  }
  return bottoms;
}

int WeightCount(const std::string& example) {
  if (absl::StrContains(example, "bn_layer")) return 4;
  if (absl::StrContains(example, "dice_layer")) return 3;
  return absl::StrContains(example, "prelu_layer") ? 1 : 0;
}

absl::StatusOr<std::unique_ptr<const Model>> LoadExample(std::string example,
                                                         const std::string& base) {
  const std::string conf =
      "feature_group_config { feature_group: \"f\" table_name: \"t\" dim: 1 } "
      "block_config { embedding_block_config_item { feature_group: \"f\" } }";
  ulfd::testing::GraphCase graph_case;
  graph_case.name = "guide";
  if (absl::StrContains(example, "embedding_layer")) {
    example = absl::StrReplaceAll(
        example,
        {{"bottom: \"input0\"", "bottom: \"f.ids\" bottom: \"f.values\" bottom: \"f.segments\""}});
    graph_case.confs = {{"user_embedding.conf", conf}};
    graph_case.tables = {{"t", "1,0.5\n"}};
  }
  std::string inputs;
  for (const std::string& name : Bottoms(example)) absl::StrAppend(&inputs, "top: \"", name, "\" ");
  graph_case.graph = absl::StrCat("layer_params { type: \"input_layer\" ", inputs, "}\n", example);
  if (const int count = WeightCount(example); count > 0) {
    const size_t at = example.find("name: \"") + 7;
    graph_case.weights_text = absl::StrCat("layer_weights_params { name: \"",
                                           example.substr(at, example.find('"', at) - at), "\" ");
    for (int i = 0; i < count; ++i) graph_case.weights_text += "blob_datas { shape: 1 data: 1 } ";
    graph_case.weights_text += "}";
  }
  fs::remove_all(base);
  return Model::Load({.directory = ulfd::testing::WriteModelDirectory(graph_case, base)});
}

TEST(GuideExamples, Load) {
  const std::string guide = GuideText();
  if (guide.empty()) GTEST_SKIP() << "the guide is not there";
  const std::string base = ::testing::TempDir() + "/guide_" + std::to_string(getpid());
  int loaded = 0;
  for (const std::string& example : Examples(guide)) {
    SCOPED_TRACE(example);
    const auto model = LoadExample(example, base);
    if (absl::StrContains(example, "div_layer")) {
      EXPECT_THAT(std::string(model.status().message()), HasSubstr("1 bottom"));
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.status();
    ++loaded;
    for (const char* spelling : {"rehshape_layer", "reduce_layer"}) {
      if (!absl::StrContains(example, spelling)) continue;
      EXPECT_THAT((*model)->info().notices, Contains(HasSubstr(spelling)));
    }
  }
  EXPECT_EQ(loaded, 19);
  fs::remove_all(base);
}

}  // namespace
}  // namespace ulfd::engine
