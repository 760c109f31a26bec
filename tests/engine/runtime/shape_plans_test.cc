// Plans for shapes that only requests show: they score as with shapes stated, are few, are compared
// before they serve, and are kept from version to version.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/paths.h"
#include "tests/testing/rocksdb_table.h"
#include "tests/testing/tiny_model.h"
#include "tests/testing/user_batch.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using testing::CaseInputs;
using ::testing::ElementsAre;
using testing::GraphCase;
using ::testing::HasSubstr;
using testing::OwnedOutput;
using testing::OwnedRequest;
using State = ShapePlanInfo::State;

constexpr double kTolerance = 1e-5;

// Two dense inputs whose widths only their sum shows: the user's beside the ads'.
constexpr char kOpenGraph[] = R"(
  layer_params { type: "input_layer" top: "u" top: "a" top: "b" }
  layer_params { name: "ads" type: "concat_layer" bottom: "a" bottom: "b" top: "ads"
                 concat_param { dim: 1 } }
  layer_params { name: "all" type: "fuse_layer" bottom: "u" bottom: "ads" top: "all"
                 fuse_param { common_input_index: 0 } }
  layer_params { name: "fc" type: "inner_product_layer" bottom: "all" top: "fc" }
  layer_params { name: "act" type: "relu_layer" bottom: "fc" top: "act" }
  layer_params { name: "score" type: "inner_product_layer" bottom: "act" top: "score" })";
// Any widths at all.
constexpr char kAnyWidth[] = R"(
  layer_params { type: "input_layer" top: "x" top: "y" }
  layer_params { name: "sum" type: "add_layer" bottom: "x" bottom: "y" top: "sum" })";

class ShapePlans : public testing::ModelDirectories {
 protected:
  std::unique_ptr<const Model> LoadCase(GraphCase graph_case, const std::string& manifest = "") {
    graph_case.name = absl::StrCat(graph_case.name, "_", ++loads_);
    graph_case.manifest += manifest;
    return Load({.directory = testing::WriteModelDirectory(graph_case, base_)});
  }
  static std::unique_ptr<const Model> Load(const LoadOptions& options) {
    auto model = Model::Load(options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }
  // The widths of u, a and b come to 9.
  std::unique_ptr<const Model> LoadOpen(const std::string& manifest = "",
                                        const std::string& graph = kOpenGraph) {
    GraphCase graph_case;
    graph_case.name = "open";
    graph_case.graph = graph;
    std::mt19937 random(3);
    const auto blob = [&](const std::vector<int>& shape) {
      std::string text = "blob_datas {";
      int elements = 1;
      for (const int d : shape) {
        absl::StrAppend(&text, " shape: ", d);
        elements *= d;
      }
      for (int i = 0; i < elements; ++i) {
        absl::StrAppend(&text, " data: ", std::uniform_real_distribution<float>(-1, 1)(random));
      }
      return text + " }";
    };
    graph_case.weights_text =
        absl::StrCat("layer_weights_params { name: \"fc\" ", blob({9, 16}), blob({16}), " }\n",
                     "layer_weights_params { name: \"score\" ", blob({16, 2}), blob({2}), " }\n");
    return LoadCase(graph_case, manifest);
  }
  std::unique_ptr<const Model> LoadAnyWidth(const std::string& manifest = "") {
    GraphCase graph_case;
    graph_case.name = "any";
    graph_case.graph = kAnyWidth;
    return LoadCase(graph_case, manifest);
  }

  // Runs it and returns the outputs.
  std::vector<OwnedOutput> Run(const Model& model, absl::Span<const NamedTensor> inputs,
                               const RunOptions& options = {}) {
    const absl::Status status = model.Run(inputs, options, workspace_, result_);
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() ? testing::Keep(result_) : std::vector<OwnedOutput>();
  }

  int loads_ = 0;
  Workspace workspace_;
  RunResult result_;
};

// An array [rows, width] of numbers that depend on `seed`.
testing::CaseArray Array(int64_t rows, int64_t width, uint32_t seed) {
  testing::CaseArray array{"float32", {rows, width}, {}};
  std::mt19937 random(seed);
  for (int64_t i = 0; i < rows * width; ++i) {
    array.values.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
  }
  return array;
}

CaseInputs Request(int64_t ads, int64_t u = 4, int64_t a = 3) {
  return CaseInputs(
      {{"u", Array(1, u, 1)}, {"a", Array(ads, a, 2)}, {"b", Array(ads, 9 - u - a, 3)}});
}

std::vector<ShapePlanInfo> MakePlans(const Model& model) {
  return model.MakePlans({}, int64_t{1} << 30);
}

// The case without anything that says whose rows an input has, or how wide it is.
GraphCase Unstated(GraphCase graph_case) {
  absl::StrReplaceAll({{"level: 0", ""}, {"level: 1", ""}}, &graph_case.graph);
  return graph_case;
}

TEST_F(ShapePlans, RandomGraphsScoreAsWithShapesStated) {
  int models = 0, planned = 0, known = 0;
  for (const GraphCase& graph_case :
       testing::ReadGraphCases(testing::TestData() + "/graphs/random.json")) {
    if (absl::EndsWith(graph_case.name, "_ads1")) continue;  // Cannot tell whose a row is.
    SCOPED_TRACE(graph_case.name);
    const auto stated = LoadCase(graph_case, testing::InputManifest(graph_case));
    const auto open = LoadCase(Unstated(graph_case));
    ASSERT_NE(stated, nullptr);
    ASSERT_NE(open, nullptr);
    const CaseInputs sample(graph_case.inputs);
    std::mt19937 random(7);
    ++models;
    std::vector<OwnedRequest> requests;
    for (const int64_t ads : {7, 1, 200}) {
      requests.push_back(OwnedRequest::Make(stated->info(), sample.tensors(), ads, 3, random));
      const auto wanted = Run(*stated, requests.back().tensors());
      ASSERT_FALSE(result_.stats.unproved);
      EXPECT_LE(testing::Difference(Run(*open, requests.back().tensors()), wanted), kTolerance);
      known += !result_.stats.unproved;
      EXPECT_EQ(result_.stats.wants_plan, open->WantsPlans());
      for (const ShapePlanInfo& plan : MakePlans(*open)) {
        EXPECT_EQ(plan.state, State::kServing) << plan.why_refused;
        ++planned;
      }
      EXPECT_FALSE(open->WantsPlans());
    }
    for (const OwnedRequest& request : requests) {
      const auto wanted = Run(*stated, request.tensors());
      const bool optimised = result_.stats.optimised;
      for (const int64_t tile : {0, 4}) {
        EXPECT_LE(testing::Difference(Run(*open, request.tensors(), {.tile_rows = tile}), wanted),
                  kTolerance);
        EXPECT_FALSE(result_.stats.unproved);
        EXPECT_EQ(result_.stats.optimised, optimised);
      }
      // Cut.
      SharedUserPart part;
      ASSERT_TRUE(open->RunUserPart(request.tensors(), {}, workspace_, part, result_).ok());
      ASSERT_GT(part.ads(), 0);
      RunStats stats;
      Workspace other;
      ASSERT_TRUE(open->RunAds(part, {}, 0, part.ads(), other, result_.outputs, stats).ok());
      EXPECT_LE(testing::Difference(testing::Keep(result_), wanted), kTolerance);
    }
    // Several users at once.
    ASSERT_EQ(open->joins_users(), stated->joins_users());
    if (!stated->joins_users()) continue;
    const std::vector<int64_t> ads = {60, 0, 41};
    std::vector<OwnedRequest> users;
    for (const int64_t n : ads) {
      users.push_back(OwnedRequest::Make(stated->info(), sample.tensors(), n, 3, random));
    }
    const OwnedRequest batch = OwnedRequest::Join(users);
    const auto wanted = Run(*stated, batch.tensors(), {.ads_per_user = ads});
    EXPECT_LE(testing::Difference(Run(*open, batch.tensors(), {.ads_per_user = ads}), wanted),
              kTolerance);
  }
  std::cout << models << " models, " << planned << " plans, " << known
            << " requests of shapes that were known without\n";
  EXPECT_GT(models, 5);
  EXPECT_GT(planned, 5);
}

TEST_F(ShapePlans, TheSecondRequestOfAShapeRunsByItsPlanWhateverItsNumberOfAds) {
  const auto model = LoadOpen();
  EXPECT_FALSE(model->row_separable());
  EXPECT_EQ(model->shape_plans().size(), 0);
  const CaseInputs few = Request(3), many = Request(500), one = Request(1);
  const auto wanted = Run(*model, few.tensors());
  EXPECT_TRUE(result_.stats.unproved);
  EXPECT_TRUE(result_.stats.wants_plan);
  const auto wanted_of_many = Run(*model, many.tensors());
  EXPECT_TRUE(result_.stats.unproved);
  EXPECT_FALSE(result_.stats.wants_plan);  // It is wanted already.
  ASSERT_EQ(model->shape_plans().size(), 1);
  EXPECT_EQ(model->shape_plans()[0].state, State::kWanted);
  const int64_t memory = model->memory_bytes();
  EXPECT_EQ(memory, model->info().memory_bytes);

  const std::vector<ShapePlanInfo> made = MakePlans(*model);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kServing) << made[0].why_refused;
  EXPECT_EQ(ShapesText(made[0].inputs), "u: user [4], a: ad [3], b: ad [2]");
  EXPECT_EQ(model->memory_bytes(), memory + made[0].bytes);
  EXPECT_GT(made[0].bytes, 0);
  EXPECT_TRUE(model->row_separable());
  EXPECT_EQ(MakePlans(*model).size(), 0);

  EXPECT_LE(testing::Difference(Run(*model, few.tensors()), wanted), kTolerance);
  EXPECT_TRUE(result_.stats.optimised);
  EXPECT_FALSE(result_.stats.unproved);
  EXPECT_LE(testing::Difference(Run(*model, many.tensors()), wanted_of_many), kTolerance);
  EXPECT_TRUE(result_.stats.optimised);
  Run(*model, one.tensors());
  EXPECT_TRUE(result_.stats.optimised);
  EXPECT_EQ(model->shape_plans()[0].runs, 3);
  // What is asked for as written stays so.
  EXPECT_LE(testing::Difference(Run(*model, few.tensors(), {.reference = true}), wanted),
            kTolerance);
  EXPECT_FALSE(result_.stats.optimised);
  Run(*model, few.tensors(), {.keep_all = true});
  EXPECT_FALSE(result_.stats.optimised);
  EXPECT_EQ(result_.tensors.size(), 5);
}

TEST_F(ShapePlans, OneRowBesideOthersIsTheUsers) {
  const auto model = LoadAnyWidth();
  const CaseInputs of_ads({{"x", Array(5, 3, 1)}, {"y", Array(5, 3, 2)}});
  const CaseInputs of_both({{"x", Array(1, 3, 1)}, {"y", Array(5, 3, 2)}});
  const CaseInputs single({{"x", Array(1, 3, 1)}, {"y", Array(1, 3, 2)}});
  for (const CaseInputs* request : {&single, &of_both, &of_ads}) {
    Run(*model, request->tensors());
    for (const ShapePlanInfo& plan : MakePlans(*model)) {
      EXPECT_EQ(plan.state, State::kServing) << plan.why_refused;
    }
    const auto wanted = Run(*model, request->tensors(), {.keep_all = true});
    EXPECT_LE(testing::Difference(Run(*model, request->tensors()), wanted), 0);
    EXPECT_FALSE(result_.stats.unproved);
  }
  // Rows that are neither one nor those of the ads have no plan.
  const CaseInputs odd({{"x", Array(5, 3, 1)}, {"y", {"float32", {2, 1, 1}, {1, 2}}}});
  Run(*model, odd.tensors());
  EXPECT_TRUE(result_.stats.unproved);
  EXPECT_FALSE(result_.stats.wants_plan);
}

TEST_F(ShapePlans, NobodyHasPlansMadeWithoutEnd) {
  const auto model = LoadAnyWidth();
  int made = 0;
  for (int64_t width = 1; width <= 20; ++width) {
    const CaseInputs request({{"x", Array(1, width, 1)}, {"y", Array(4, width, 2)}});
    Run(*model, request.tensors());
    made += static_cast<int>(MakePlans(*model).size());
    const auto wanted = Run(*model, request.tensors(), {.keep_all = true});
    EXPECT_LE(testing::Difference(Run(*model, request.tensors()), wanted), 0);
    EXPECT_EQ(result_.stats.unproved, width > 8);
  }
  EXPECT_EQ(made, 8);
  EXPECT_EQ(model->shape_plans().size(), 8);
}

TEST_F(ShapePlans, AShapeTakesThePlaceOfTheOneThatNobodyAskedForForLongest) {
  const auto model = LoadAnyWidth("user_cache_bytes: 100000\n");
  const auto run = [&](int64_t width, const RunOptions& options = {}) {
    const CaseInputs request({{"x", Array(1, width, 1)}, {"y", Array(4, width, 2)}});
    return Run(*model, request.tensors(), options);
  };
  for (int64_t width = 1; width <= 8; ++width) {
    run(width);
    ASSERT_EQ(MakePlans(*model)[0].state, State::kServing);
  }
  const int64_t memory = model->memory_bytes();
  for (const int64_t width : {1, 2, 4, 5, 6, 7, 8}) run(width);
  const auto begin = std::chrono::steady_clock::now();
  while (!result_.stats.wants_plan) {
    run(9);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  run(10);
  EXPECT_FALSE(result_.stats.wants_plan);  // One at a time.
  run(3);
  EXPECT_FALSE(result_.stats.unproved);  // Until then.
  std::atomic<bool> replaced = false;
  std::thread runs_meanwhile([&] {
    UseOneThread();
    Workspace workspace;
    RunResult result;
    const CaseInputs request({{"x", Array(1, 3, 1)}, {"y", Array(4, 3, 2)}});
    while (!replaced.load() || !result.stats.unproved) {
      ASSERT_TRUE(model->Run(request.tensors(), {}, workspace, result).ok());
    }
  });
  std::vector<ShapePlanInfo> made = MakePlans(*model);
  replaced.store(true);
  runs_meanwhile.join();
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kServing) << made[0].why_refused;
  EXPECT_EQ(model->shape_plans().size(), 8);
  EXPECT_LE(model->memory_bytes(), memory + made[0].bytes);
  for (int64_t width = 1; width <= 10; ++width) {
    EXPECT_LE(testing::Difference(run(width), run(width, {.keep_all = true})), 0);
    run(width);
    EXPECT_EQ(result_.stats.unproved, width == 3 || width == 10) << width;
    EXPECT_FALSE(result_.stats.wants_plan);
  }
}

TEST_F(ShapePlans, ALargeRequestThatIsKeptMakesRoomForOthers) {
  const auto model = LoadAnyWidth();
  constexpr int64_t kWide = 260000;  // With the user's 2 MB of the 2 MiB.
  const CaseInputs large({{"x", Array(1, kWide, 1)}, {"y", Array(1, kWide, 2)}});
  const CaseInputs usual({{"x", Array(1, 3000, 1)}, {"y", Array(2, 3000, 2)}});
  Run(*model, large.tensors());
  ASSERT_EQ(MakePlans(*model)[0].state, State::kServing);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Run(*model, usual.tensors());
  } while (!result_.stats.wants_plan);
  ASSERT_EQ(MakePlans(*model)[0].state, State::kServing);
  Run(*model, usual.tensors());
  EXPECT_FALSE(result_.stats.unproved);
  EXPECT_EQ(model->shape_plans().size(), 1);
}

TEST_F(ShapePlans, AreRefusedWithAReasonAndNotTriedAgain) {
  GraphCase graph_case;
  graph_case.name = "mixed";
  graph_case.graph = absl::StrCat(
      kAnyWidth,
      "layer_params { name: \"total\" type: \"sum_layer\" bottom: \"sum\" top: \"total\" "
      "sum_param { dim: 0 } }");
  const auto mixed = LoadCase(graph_case);
  const CaseInputs request({{"x", Array(1, 3, 1)}, {"y", Array(4, 3, 2)}});
  Run(*mixed, request.tensors());
  std::vector<ShapePlanInfo> made = MakePlans(*mixed);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kRefused);
  EXPECT_THAT(made[0].why_refused,
              HasSubstr("not proved independent: layer 2 \"total\" (sum_layer)"));
  Run(*mixed, request.tensors());
  EXPECT_TRUE(result_.stats.unproved);
  EXPECT_FALSE(result_.stats.wants_plan);
  EXPECT_FALSE(mixed->WantsPlans());

  // Other bits are beyond a tolerance of nothing: the user's columns, last here, are summed first.
  const auto exact =
      LoadOpen("golden_tolerance: 0\n",
               absl::StrReplaceAll(
                   kOpenGraph, {{R"(bottom: "u" bottom: "ads")", R"(bottom: "ads" bottom: "u")"},
                                {"common_input_index: 0", "common_input_index: 1"}}));
  Run(*exact, Request(20).tensors());
  made = MakePlans(*exact);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kRefused);
  EXPECT_THAT(made[0].why_refused, HasSubstr("output \"score\" element "));
  EXPECT_THAT(made[0].why_refused, HasSubstr("tolerance 0"));
}

TEST_F(ShapePlans, KeepToTheMemoryThatIsLeft) {
  const auto model = LoadOpen();
  Run(*model, Request(20).tensors());
  std::vector<ShapePlanInfo> made = model->MakePlans({}, 100);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kRefused);
  EXPECT_THAT(made[0].why_refused, HasSubstr("bytes, and there are 100 left for it"));
  EXPECT_EQ(model->memory_bytes(), model->info().memory_bytes);

  // The manifest's limit, which the model alone keeps.
  const int64_t limit = model->info().memory_bytes + 100;
  const auto limited = LoadOpen(absl::StrCat("memory_limit_bytes: ", limit, "\n"));
  Run(*limited, Request(20).tensors());
  made = MakePlans(*limited);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kRefused);
}

TEST_F(ShapePlans, ALargeRequestIsCutToShowItsShapes) {
  const auto model = LoadAnyWidth();
  constexpr int64_t kWide = 150000;  // 4 ads and the user have more than 2 MiB.
  const CaseInputs request({{"x", Array(1, kWide, 1)}, {"y", Array(4, kWide, 2)}});
  Run(*model, request.tensors());
  EXPECT_TRUE(result_.stats.wants_plan);
  EXPECT_EQ(MakePlans(*model)[0].state, State::kServing);
  Run(*model, request.tensors());
  EXPECT_FALSE(result_.stats.unproved);
  // A single ad is too much.
  const CaseInputs larger({{"x", Array(1, 2 * kWide, 1)}, {"y", Array(4, 2 * kWide, 2)}});
  Run(*model, larger.tensors());
  EXPECT_FALSE(result_.stats.wants_plan);
}

TEST_F(ShapePlans, LargeRequestsTogetherKeepToABound) {
  const auto model = LoadAnyWidth();
  int wanted = 0;
  for (int64_t width = 60000; width < 60008; ++width) {  // 0.5 MB each, of 2 MiB.
    const CaseInputs request({{"x", Array(1, width, 1)}, {"y", Array(1, width, 2)}});
    Run(*model, request.tensors());
    wanted += result_.stats.wants_plan;
  }
  EXPECT_EQ(wanted, 4);
  const CaseInputs small({{"x", Array(1, 9, 1)}, {"y", Array(4, 9, 2)}});
  Run(*model, small.tensors());
  EXPECT_TRUE(result_.stats.wants_plan);
}

TEST_F(ShapePlans, SmallInputsOfLargeResultsHaveNone) {
  const auto model = LoadAnyWidth();
  testing::CaseArray x = Array(1, 4200, 1), y = Array(1, 4200, 2);
  x.shape = {1, 4200, 1};
  y.shape = {1, 1, 4200};
  const CaseInputs request({{"x", x}, {"y", y}});
  Run(*model, request.tensors());
  const std::vector<ShapePlanInfo> made = MakePlans(*model);
  ASSERT_EQ(made.size(), 1);
  EXPECT_EQ(made[0].state, State::kRefused);
  EXPECT_EQ(made[0].why_refused, "the request that showed it takes more than 67108864 bytes");
}

TEST_F(ShapePlans, AStopLeavesThemWanted) {
  const auto model = LoadOpen();
  Run(*model, Request(20).tensors());
  const std::function<bool()> stop = [] { return true; };
  EXPECT_EQ(model->MakePlans({.stop = &stop}, int64_t{1} << 30).size(), 0);
  EXPECT_TRUE(model->WantsPlans());
  EXPECT_EQ(MakePlans(*model)[0].state, State::kServing);
}

TEST_F(ShapePlans, AVersionMayWantThoseOfTheOneBefore) {
  const auto before = LoadOpen(), after = LoadOpen();
  const CaseInputs used = Request(20), unused = Request(20, 2, 2), waiting = Request(20, 1, 1);
  for (const CaseInputs* request : {&used, &unused}) {
    Run(*before, request->tensors());
    ASSERT_EQ(MakePlans(*before)[0].state, State::kServing);
  }
  Run(*before, used.tensors());
  Run(*before, waiting.tensors());
  after->WantPlansOf(*before, {}, workspace_, result_);
  const std::vector<ShapePlanInfo> made = MakePlans(*after);
  ASSERT_EQ(made.size(), 2);
  EXPECT_EQ(ShapesText(made[0].inputs), "u: user [4], a: ad [3], b: ad [2]");
  EXPECT_EQ(ShapesText(made[1].inputs), "u: user [1], a: ad [1], b: ad [7]");
  Run(*after, Request(100).tensors());
  EXPECT_FALSE(result_.stats.unproved);
  // A model that they say nothing to.
  const auto other = LoadAnyWidth();
  other->WantPlansOf(*before, {}, workspace_, result_);
  EXPECT_FALSE(other->WantsPlans());
}

TEST_F(ShapePlans, AreThoseOfAModelThatIsLoadedForTheShapes) {
  const auto open = LoadOpen();
  const CaseInputs request = Request(20);
  Run(*open, request.tensors());
  const std::vector<ShapePlanInfo> made = MakePlans(*open);
  ASSERT_EQ(made.size(), 1);
  const std::string directory = fs::path(open->info().graph_file).parent_path();
  const auto loaded = Load({.directory = directory, .inputs = made[0].inputs});
  EXPECT_EQ(loaded->info().not_optimised, "");
  const auto wanted = Run(*loaded, request.tensors());
  EXPECT_TRUE(result_.stats.optimised);
  EXPECT_EQ(testing::Difference(Run(*open, request.tensors()), wanted), 0);
  EXPECT_FALSE(loaded->WantsPlans());
  const auto unknown = Model::Load({.directory = directory, .inputs = {{.name = "z"}}});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("\"z\", which is no input"));
}

TEST_F(ShapePlans, KeepUsersAndLayersInDouble) {
  const auto model = LoadOpen(
      "user_cache_bytes: 100000\ndouble_layers: \"fc\"\nbackend: BACKEND_ONEDNN\nexact: true\n");
  EXPECT_EQ(model->info().notices.size(), 0);
  const CaseInputs request = Request(20);
  const auto wanted = Run(*model, request.tensors());
  ASSERT_EQ(MakePlans(*model)[0].state, State::kServing);
  const int64_t before = model->user_cache().hits;
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(testing::Difference(Run(*model, request.tensors()), wanted), kTolerance);
    EXPECT_FALSE(result_.stats.unproved);
  }
  EXPECT_GE(model->user_cache().hits, before);
}

// Compared in fp32, served in bf16: the scores as written are within 1e-4 of the first alone.
TEST_F(ShapePlans, KeepThePrecision) {
  if (!Has(Precision::kBf16))
    GTEST_SKIP() << "this machine has no AVX512-BF16, or ULFD_ISA leaves it out";
  for (const char* backend : {"", "backend: BACKEND_ONEDNN\n"}) {
    const auto model = LoadOpen(absl::StrCat(backend, "precision: PRECISION_BF16\n"));
    const CaseInputs request = Request(20);
    const auto wanted = Run(*model, request.tensors());
    ASSERT_EQ(MakePlans(*model)[0].state, State::kServing);
    const double moved = testing::Difference(Run(*model, request.tensors()), wanted);
    EXPECT_FALSE(result_.stats.unproved);
    EXPECT_GT(moved, 1e-4);
    EXPECT_LT(moved, 0.03);
  }
}

TEST_F(ShapePlans, WarmUpOfTheLoaderShowsNoShapes) {
  const auto model = LoadOpen();
  EXPECT_TRUE(model->RunWarmup(4, {}, workspace_, result_).ok());
  EXPECT_FALSE(model->WantsPlans());
}

TEST_F(ShapePlans, AreTakenByRequestsThatRunMeanwhile) {
  const auto model = LoadOpen();
  const CaseInputs request = Request(40);
  const auto wanted = Run(*model, request.tensors());
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      UseOneThread();
      Workspace workspace;
      RunResult result;
      do {
        ASSERT_TRUE(model->Run(request.tensors(), {}, workspace, result).ok());
        EXPECT_LE(testing::Difference(testing::Keep(result), wanted), kTolerance);
      } while (result.stats.unproved);
    });
  }
  EXPECT_EQ(MakePlans(*model)[0].state, State::kServing);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ShapePlans, LookUpRowsOfStores) {
  const std::string version = base_ + "/tiny/1";
  testing::WriteTinyModel(version);
  std::ofstream(version + "/model.textproto");  // Nothing is stated.
  const absl::Status stored = testing::MoveIntoRocksdb(
      version, "mid_table", {{10, {1, 0}}, {11, {2, 0}}}, "missing_keys: MISSING_KEY_POLICY_ERROR");
  if (absl::IsUnimplemented(stored)) GTEST_SKIP() << stored;
  ASSERT_TRUE(stored.ok()) << stored;
  const auto model = Load({.directory = version});
  std::vector<int64_t> uid = {1}, mids = {10, 11, 10};
  std::vector<float> price = {5, 6, 7};
  std::vector<int32_t> mask = {1, 1};
  const std::vector<NamedTensor> inputs = {{"uid.ids", {DType::kInt64, {1}, uid.data()}},
                                           {"mid.ids", {DType::kInt64, {3}, mids.data()}},
                                           {"price", {DType::kFloat32, {3, 1}, price.data()}},
                                           {"mask", {DType::kInt32, {1, 2}, mask.data()}}};
  const auto scores = [&](bool unproved) {
    Run(*model, inputs);
    EXPECT_EQ(result_.stats.unproved, unproved);
    const Tensor& score = result_.outputs[static_cast<size_t>(model->FindOutput("score"))];
    return std::vector<float>{score.f32()[0], score.f32()[2], score.f32()[4]};
  };
  EXPECT_THAT(scores(true), ElementsAre(6, 8, 8));
  const std::vector<ShapePlanInfo> plans = model->MakePlans({}, INT64_MAX);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].state, State::kServing) << plans[0].why_refused;
  EXPECT_THAT(scores(false), ElementsAre(6, 8, 8));
}

}  // namespace
}  // namespace ulfd::engine
