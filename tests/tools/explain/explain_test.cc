// `ulf explain` on models small enough to count by hand.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "nlohmann/json.hpp"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"
#include "tools/explain/explanation.h"
#include "tools/explain/graph_picture.h"
#include "tools/explain/profile.h"
#include "tools/model/made_up_inputs.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The name of the first element that is not closed where it should be; "": all are.
std::string UnclosedElement(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "<";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/') continue;
    const std::string name = tag.substr(0, tag.find(' '));
    if (name[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || open.back() != name.substr(1)) {
      return name;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

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
  const std::string text = ExplainText(Explain(*model_, 200, nullptr));
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
  EXPECT_EQ(plan.steps[1].part, engine::PlanPart::kUser);
  // The ad's lookup needs no user; what reads it does.
  EXPECT_EQ(plan.steps[3].part, engine::PlanPart::kAd);
  EXPECT_EQ(plan.steps.back().part, engine::PlanPart::kJoint);
  double flops = 0;
  for (const engine::PlanPart part : engine::kPlanParts) flops += plan.CostOf(part).flops.At(200);
  EXPECT_EQ(flops, plan.cost.flops.At(200));
  EXPECT_EQ(plan.CostOf(engine::PlanPart::kUser).flops.per_ad, 0);
  // fc, and a copy of 4 and of 5 columns.
  EXPECT_EQ(plan.CostOf(engine::PlanPart::kJoint).flops.per_ad, 20 + 4 + 5);
  ASSERT_EQ(plan.crossing.size(), 1u);
  EXPECT_EQ(plan.values[plan.crossing[0]].name, "masked");
  EXPECT_EQ(plan.steps[1].cost.flops.At(200), 2);  // Two elements, whatever the ads.
  EXPECT_EQ(plan.steps.back().cost.flops.per_ad, 20);
  EXPECT_EQ(plan.steps.back().cost.flops.per_user, 0);
  EXPECT_TRUE(plan.separable);
  EXPECT_TRUE(plan.shapes_known);
}

TEST_F(ExplainTest, CountsWhatWindowsRead) {
  Write("graph_ulf.txt", R"(
      layer_params { type: "input_layer" top: "x" }
      layer_params { name: "c" type: "convolution_layer" bottom: "x" top: "c"
        convolution_param { kernel_size: 3 bias_term: false } }
      layer_params { name: "p" type: "max_pooling_layer" bottom: "c" top: "p"
        pooling_param { kernel_size: 2 } }
      layer_params { name: "g" type: "max_pooling_layer" bottom: "p" top: "g"
        pooling_param { global_pooling: true } })");
  std::string weight = "layer_weights_params { name: \"c\" blob_datas { shape: [4, 2, 3, 3]";
  for (int i = 0; i < 4 * 2 * 3 * 3; ++i) weight += " data: 1";
  Write("weights.pb", weight + " } }");
  Write("model.textproto", "inputs { name: \"x\" level: INPUT_LEVEL_AD row_shape: [2, 5, 6] }");
  Load();
  const engine::PlanInfo plan = model_->WrittenPlan();
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.steps[0].cost.flops.per_ad, 4 * 3 * 4 * 2 * (2 * 3 * 3));
  EXPECT_EQ(plan.steps[1].cost.flops.per_ad, 4 * 2 * 3 * (2 * 2));
  EXPECT_EQ(plan.steps[2].cost.flops.per_ad, 4 * 2 * 3);
}

TEST_F(ExplainTest, TellsTheFateOfALayer) {
  // "loose" is read by nothing, once the manifest names the outputs.
  Write("model.textproto",
        "outputs: \"score\"\n"
        "inputs { name: \"price\" level: INPUT_LEVEL_AD row_shape: 1 }\n"
        "inputs { name: \"mask\" level: INPUT_LEVEL_USER row_shape: 2 }\n");
  Load();
  const Explanation all = Explain(*model_, 10, nullptr);
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
  EXPECT_THAT(ExplainText(all), HasSubstr("16 B  nothing reads layer 7 \"relu\" (relu_layer)\n"));
}

TEST_F(ExplainTest, WarnsOfGuesses) {
  Write("model.textproto", "");
  Load();
  const Explanation all = Explain(*model_, 10, nullptr);
  EXPECT_THAT(all.warnings, ::testing::Contains(HasSubstr("shape or level is a guess for price")));
}

// A name with everything that HTML treats specially.
TEST_F(ExplainTest, WritesAPageThatIsWellFormedAndEscapesNames) {
  std::string graph = ulfd::testing::kTinyGraph;
  for (size_t at = 0; (at = graph.find("\"masked\"", at)) != std::string::npos;) {
    graph.replace(at, 8, "\"<m&'k\\\">\xc3\xa9\"");
  }
  Write("graph_ulf.txt", graph);
  Load();
  const std::string html = ExplainHtml(Explain(*model_, 10, nullptr));
  EXPECT_THAT(html, HasSubstr(">&lt;m&amp;&#39;k&quot;&gt;\xc3\xa9</text>"));
  for (const engine::LayerInfo& layer : model_->info().layers) {
    if (layer.type == "input_layer") continue;
    EXPECT_THAT(html, HasSubstr("xlink:href=\"#layer-" + std::to_string(layer.index) + "\""));
    EXPECT_THAT(html, HasSubstr("<tr id=\"layer-" + std::to_string(layer.index) + "\""));
    EXPECT_THAT(html, HasSubstr("<td>" + EscapeHtml(layer.name) + "</td>")) << layer.name;
  }
  EXPECT_THAT(html, HasSubstr(">user part: once per request, "));
  EXPECT_THAT(html, HasSubstr(">ad part: of every ad alone, "));
  EXPECT_THAT(html, HasSubstr(">joint part: of every ad and the user, 290 FLOPs</text>"));
  EXPECT_THAT(html, HasSubstr("class=\"edge crossing\""));
  EXPECT_THAT(html, HasSubstr("[users, 2]</text>"));
  EXPECT_EQ(UnclosedElement(html), "");
  for (const char* foreign : {"<script", "http://", "https://", "@import", "url("}) {
    std::string rest = html;
    for (const std::string name : {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}) {
      for (size_t at; (at = rest.find(name)) != std::string::npos;) rest.erase(at, name.size());
    }
    EXPECT_EQ(rest.find(foreign), std::string::npos) << foreign;
  }
}

TEST(EscapeHtmlTest, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(EscapeHtml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(EscapeHtml("\xc3\xa9\xe6\xbc\xa2"), "\xc3\xa9\xe6\xbc\xa2");
  for (const std::string bad : {"\xff", "\x80", "\x01", "\xc0", "\xc3", "\xef\xbf\xbf"}) {
    EXPECT_EQ(EscapeHtml(bad), "\xef\xbf\xbd");
  }
  EXPECT_EQ(EscapeHtml("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd");  // "/" in two bytes.
}

TEST_F(ExplainTest, WritesJsonForPrograms) {
  Load();
  const auto json = nlohmann::json::parse(ExplainJson(Explain(*model_, 100, nullptr)));
  EXPECT_EQ(json.at("name"), "tiny");
  EXPECT_EQ(json.at("ads"), 100);
  ASSERT_EQ(json.at("layers").size(), 8u);
  const auto& fc = json.at("layers")[6];
  EXPECT_EQ(fc.at("name"), "fc");
  EXPECT_EQ(fc.at("level"), "ad");
  EXPECT_EQ(fc.at("tops")[0].at("shape"), "[ads, 2]");
  EXPECT_EQ(fc.at("cost").at("flops").at("per_ad"), 20);
  EXPECT_EQ(fc.at("cost").at("flops").at("total"), 2000);
  const auto& plan = json.at("plans").at("written");
  EXPECT_EQ(plan.at("steps").size(), 7u);
  EXPECT_EQ(plan.at("steps")[0].at("part"), "user");
  // The lookup of the ad's ids needs no user; the layer behind it does.
  int alone = 0;
  for (const auto& step : plan.at("steps")) {
    if (step.at("part") != "ad") continue;
    ++alone;
    EXPECT_EQ(step.at("type"), "embedding_layer");
  }
  EXPECT_EQ(alone, 1);
  EXPECT_EQ(plan.at("steps")[6].at("part"), "joint");
  EXPECT_EQ(plan.at("parts").at("joint").at("flops").at("total"), 2900);
  for (const auto& step : plan.at("steps")) {
    for (const auto& id : step.at("inputs")) EXPECT_LT(id, plan.at("values").size());
  }
  for (const auto& rewrite : json.at("rewrites")) {
    EXPECT_TRUE(rewrite.at("saved").at("bytes").at("total").is_number());
    for (const auto& layer : rewrite.at("layers")) EXPECT_LT(layer, 8);
  }
  EXPECT_TRUE(json.at("profiles").empty());
  EXPECT_TRUE(json.at("cancellations").empty());
}

TEST_F(ExplainTest, ProfilesEveryStep) {
  engine::UseOneThread();
  Load();
  auto arrays = MakeUpInputs(*model_, 50, 3);
  ASSERT_TRUE(arrays.ok()) << arrays.status();
  EXPECT_EQ(AdsOf(model_->info(), *arrays), 50);
  EXPECT_EQ(arrays->at("price").dims, (std::vector<int64_t>{50, 1}));
  const std::vector<int64_t> ids = arrays->at("mid.ids").ToInt64();
  ASSERT_FALSE(ids.empty());
  for (int64_t id : ids) EXPECT_TRUE(id >= 10 && id <= 12) << id << " is not in the table";
  for (const bool reference : {false, true}) {
    const auto profile = MeasureProfile(*model_, InputViews(model_->info(), *arrays),
                                        {.ads = 50, .seconds = 0, .reference = reference});
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(profile->optimised, !reference);
    const engine::PlanInfo plan = reference ? model_->WrittenPlan() : *model_->OptimisedPlan();
    ASSERT_EQ(profile->steps.size(), plan.steps.size());
    EXPECT_EQ(profile->runs, 10);
    EXPECT_GT(profile->request_us, 0);
    EXPECT_GT(profile->steps_us, 0);
    EXPECT_GT(profile->peak_gflops, 0.1);
    for (const Profile::Step& step : profile->steps) {
      EXPECT_LE(step.share_of_peak, 1.5);
      EXPECT_NEAR(step.share_of_request * profile->request_us, step.us, 1e-6);
    }
    Explanation all = Explain(*model_, 50, nullptr);
    all.profiles.push_back(*profile);
    EXPECT_THAT(ExplainText(all),
                HasSubstr(reference ? "Profile, as written: 50 ads, one thread, "
                                    : "Profile, optimised: 50 ads, one thread, "));
    EXPECT_EQ(UnclosedElement(ExplainHtml(all)), "");
  }
}

TEST_F(ExplainTest, NeedsAShapeToMakeUpInputs) {
  Write("model.textproto", "inputs { name: \"price\" level: INPUT_LEVEL_AD row_shape: 1 }\n");
  Load();
  EXPECT_EQ(MakeUpInputs(*model_, 5, 1).status().message(),
            "the shape of input \"mask\" is not known: give --inputs=FILE.npz, or state it in the "
            "manifest (inputs)");
}

struct Box {
  double left = 1e9, top = 1e9, right = -1e9, bottom = -1e9;
};

// The frame of the node or cluster whose <title> that is: its first polygon.
Box BoxOf(const std::string& svg, const std::string& title) {
  Box box;
  size_t at = svg.find("<title>" + title + "</title>");
  if (at == std::string::npos) return box;
  at = svg.find("points=\"", svg.find("<polygon", at)) + 8;
  std::istringstream points(svg.substr(at, svg.find('"', at) - at));
  char comma;
  for (double x, y; points >> x >> comma >> y;) {
    box.left = std::min(box.left, x);
    box.right = std::max(box.right, x);
    box.top = std::min(box.top, y);
    box.bottom = std::max(box.bottom, y);
  }
  return box;
}

TEST_F(ExplainTest, DrawsTheOthersBelowTheUserPartAndNothingOverlaps) {
  Load(/*optimise=*/false);
  const Explanation all = Explain(*model_, 10, nullptr);
  const std::string svg = PlanPicture(all, all.plan(), nullptr);
  std::vector<Box> user, others;
  const Box user_part = BoxOf(svg, "cluster_user"), ad_part = BoxOf(svg, "cluster_ad"),
            joint_part = BoxOf(svg, "cluster_joint");
  const auto within = [](const Box& box, const Box& part) {
    return box.left >= part.left && box.right <= part.right && box.top >= part.top &&
           box.bottom <= part.bottom;
  };
  int ads = 0;
  for (int i = 0;; ++i) {
    const std::string title = "n" + std::to_string(i);
    const Box box = BoxOf(svg, title);
    if (box.left > box.right) break;
    const bool of_user = within(box, user_part), of_ad = within(box, ad_part);
    EXPECT_EQ(of_user + of_ad + within(box, joint_part), 1) << i;
    ads += of_ad;
    (of_user ? user : others).push_back(box);
  }
  EXPECT_EQ(user.size(), 5u);    // user, masked and relu; uid and mask.
  EXPECT_EQ(ads, 3);             // ad; mid and price.
  EXPECT_EQ(others.size(), 6u);  // Also fuse, all and fc.
  std::vector<Box> boxes = user;
  boxes.insert(boxes.end(), others.begin(), others.end());
  for (size_t a = 0; a < boxes.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      EXPECT_TRUE(boxes[a].left >= boxes[b].right || boxes[b].left >= boxes[a].right ||
                  boxes[a].top >= boxes[b].bottom || boxes[b].top >= boxes[a].bottom)
          << a << " and " << b;
    }
  }
  for (const Box& above : user) {
    for (const Box& below : others) EXPECT_LT(above.bottom, below.top);
  }
}

TEST_F(ExplainTest, LeavesThePictureAsTextWhereGraphvizIsMissing) {
  Load();
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", directory_.c_str(), 1), 0);
  const std::string html = ExplainHtml(Explain(*model_, 10, nullptr));
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  EXPECT_THAT(html, HasSubstr("pictures need Graphviz&#39;s program dot (Debian: graphviz)"));
  EXPECT_THAT(html, HasSubstr("<pre>digraph {"));
  EXPECT_THAT(html, HasSubstr("<tr id=\"layer-1\""));
  EXPECT_EQ(UnclosedElement(html), "");
}

}  // namespace
}  // namespace ulfd::tools
