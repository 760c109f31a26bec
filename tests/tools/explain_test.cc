// `ulf explain` on models small enough to count by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/runtime/model.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"
#include "tools/explain_text.h"
#include "tools/explanation.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExplainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = temp_.File("tiny/1");
    ulfd::testing::WriteTinyModel(directory_);
  }
  void Load(bool optimise = true) {
    auto model = engine::Model::Load({.directory = directory_, .optimise = optimise});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
  }
  TempDir temp_;
  std::string directory_;
  std::unique_ptr<const engine::Model> model_;
};

TEST_F(ExplainTest, SaysWhatRunsPerRequestAndWhatPerAd) {
  Load(/*optimise=*/false);
  const std::string text = ExplainText(Explain(*model_, 200));
  EXPECT_THAT(text, HasSubstr("model tiny, version 1\n"));
  EXPECT_THAT(text, HasSubstr("  figures  for one user and 200 ads\n"));
  EXPECT_THAT(text, HasSubstr("Dense inputs\n"
                              "  name   type     shape       level  known   read\n"
                              "  price  float32  [ads, 1]    ad     stated  yes\n"
                              "  mask   int32    [users, 2]  user   stated  yes\n"));
  EXPECT_THAT(text, HasSubstr("Sparse features\n"
                              "  name  level  known   tables\n"
                              "  uid   user   stated  uid_table\n"));
  // fc: 2 * 200 * 5 * 2 FLOPs; 200 * (5 + 2) * 4 bytes.
  EXPECT_THAT(text, HasSubstr("  ad     [ads, 2]    4.00 k  5.5 KiB  kept                6\n"));
  EXPECT_THAT(text, HasSubstr("\n  -- cut: masked [users, 2] --\n"));
  EXPECT_THAT(text, HasSubstr("Warnings\n  the graph is executed as written: optimisation is "
                              "switched off\n"));
}

TEST_F(ExplainTest, FindsWhatCrossesTheCutAndWhatIsComputedOnce) {
  Load(/*optimise=*/false);
  const engine::PlanInfo plan = model_->WrittenPlan();
  EXPECT_FALSE(model_->OptimisedPlan().has_value());
  ASSERT_EQ(plan.steps.size(), 7u);
  ASSERT_EQ(plan.user_steps, 3);  // user, masked, relu
  EXPECT_EQ(plan.steps[1].label, "layer 3 \"masked\" (where_layer)");
  EXPECT_THAT(plan.steps[1].layers, ElementsAre(3));
  EXPECT_TRUE(plan.steps[1].user_part);
  EXPECT_FALSE(plan.steps[3].user_part);
  ASSERT_EQ(plan.crossing.size(), 1u);
  EXPECT_EQ(plan.values[plan.crossing[0]].name, "masked");
  EXPECT_EQ(plan.steps[1].cost.flops.At(200), 2);  // Two elements, whatever the ads.
  EXPECT_EQ(plan.steps.back().cost.flops.per_ad, 20);
  EXPECT_EQ(plan.steps.back().cost.flops.per_user, 0);
  EXPECT_TRUE(plan.separable);
  EXPECT_TRUE(plan.shapes_known);
}

TEST_F(ExplainTest, TellsTheFateOfALayer) {
  // "loose" is read by nothing, once the manifest names the outputs.
  Write("model.textproto",
        "outputs: \"score\"\n"
        "inputs { name: \"price\" level: INPUT_LEVEL_AD row_shape: 1 }\n"
        "inputs { name: \"mask\" level: INPUT_LEVEL_USER row_shape: 2 }\n");
  Load();
  const Explanation all = Explain(*model_, 10);
  ASSERT_TRUE(all.optimised.has_value());
  ASSERT_EQ(all.layers.size(), 8u);
  EXPECT_EQ(all.layers[0].fate, Fate::kDeclared);
  EXPECT_EQ(all.layers[2].fate, Fate::kKept);
  EXPECT_EQ(all.layers[7].fate, Fate::kRemoved);  // relu
  EXPECT_TRUE(all.layers[7].steps.empty());
  ASSERT_EQ(all.layers[7].rewrites.size(), 1u);
  const engine::Rewrite& rewrite = all.info->rewrites[all.layers[7].rewrites[0]];
  EXPECT_EQ(rewrite.pass, "dead_code");
  EXPECT_EQ(rewrite.saved.flops.At(10), 2);
  EXPECT_THAT(ExplainText(all), HasSubstr("dead_code  7                 2         16 B  nothing "
                                          "reads layer 7 \"relu\" (relu_layer)\n"));
}

TEST_F(ExplainTest, WarnsOfGuesses) {
  Write("model.textproto", "");
  Load();
  const Explanation all = Explain(*model_, 10);
  EXPECT_THAT(all.warnings, ::testing::Contains(HasSubstr("shape or level is a guess for price")));
}

}  // namespace
}  // namespace ulfd::tools
