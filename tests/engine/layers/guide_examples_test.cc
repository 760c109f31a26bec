// Every row of the published layer guide (beside the checkout) is a layer type, and its sample
// loads, in a graph that declares its bottoms and with weights where its type wants some.  Two
// cannot: div names one bottom, and embedding names "input0" where three inputs per feature belong
// (it is tried with those).
// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <ostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/layers/registry.h"
#include "engine/runtime/model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

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

absl::StatusOr<std::unique_ptr<const Model>> LoadExample(std::string example) {
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
  const TempDir base;
  return Model::Load({.directory = ulfd::testing::WriteModelDirectory(graph_case, base.path())});
}

// A row of the guide's list of layers.
struct Row {
  const char* type;
  const char* sample = nullptr;  // The type as its sample spells it; null: as it is.
  bool has_sample = true;
  const char* error = nullptr;  // What is wrong with the sample.
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.type; }

constexpr Row kRows[] = {{"add_layer"},
                         {"batchdot_layer"},
                         {"bn_layer"},
                         {"broadcast_to_layer"},
                         {"concat_layer"},
                         {"constant_layer"},
                         {"dice_layer"},
                         {.type = "div_layer", .error = "1 bottom"},
                         {"embedding_layer"},
                         {"fuse_layer"},
                         {.type = "gru_layer", .has_sample = false},
                         {.type = "inner_product_layer", .has_sample = false},
                         {.type = "inner_product_layer_ex", .has_sample = false},
                         {"multiply_layer"},
                         {"prelu_layer"},
                         {"relu_layer"},
                         {"reshape_layer", "rehshape_layer"},
                         {"sigmoid_layer"},
                         {"slice_layer"},
                         {.type = "softmax_layer", .has_sample = false},
                         {"sub_layer"},
                         {"sum_layer", "reduce_layer"},
                         {"tanh_layer"},
                         {"where_layer"}};

// Values are checked by tests/data/layers.
class Seed000 : public ::testing::TestWithParam<Row> {};

TEST_P(Seed000, IsKnownAndItsSampleLoads) {
  const Row& row = GetParam();
  Notices notices;
  const auto type = FindLayerType(row.type, notices);
  ASSERT_TRUE(type.ok()) << type.status();
  EXPECT_EQ((*type)->name, row.type);
  EXPECT_TRUE(notices.empty());
  const std::string guide = ulfd::testing::SharedDocument("000");
  if (guide.empty()) GTEST_SKIP() << "the guide is not there";
  EXPECT_TRUE(absl::StrContains(guide, absl::StrCat(">", row.type, "</a>")));
  const std::string spelling = row.sample == nullptr ? row.type : row.sample;
  int samples = 0;
  for (const std::string& example : Examples(guide)) {
    if (!absl::StrContains(example, absl::StrCat("type: \"", spelling, "\""))) continue;
    SCOPED_TRACE(example);
    ++samples;
    const auto model = LoadExample(example);
    if (row.error != nullptr) {
      EXPECT_THAT(std::string(model.status().message()), HasSubstr(row.error));
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.status();
    if (row.sample != nullptr) {
      EXPECT_THAT((*model)->info().notices, Contains(HasSubstr(row.sample)));
    }
  }
  EXPECT_EQ(samples, row.has_sample ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, Seed000, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.type); });

TEST(Seed000Rows, AreAllOfTheGuidesList) {
  const std::string guide = ulfd::testing::SharedDocument("000");
  if (guide.empty()) GTEST_SKIP() << "the guide is not there";
  const std::string link = " * <a href=";
  size_t rows = 0;
  for (size_t at = guide.find(link); at != std::string::npos; at = guide.find(link, at + 1)) ++rows;
  EXPECT_EQ(rows, std::size(kRows));
}

}  // namespace
}  // namespace ulfd::engine
