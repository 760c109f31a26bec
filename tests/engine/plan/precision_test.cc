// precision and layer_precision of the manifest: which steps are in bf16 and int8, how far scores
// move, what is refused; CTest runs it also with ULFD_ISA=avx2 (no bf16) and portable (neither).
// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/precision.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace ulfd::engine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kUser = 12, kAd = 21, kSteps = 5, kAds = 7;

constexpr char kGraph[] = R"(
layer_params { type: "input_layer" top: "u" top: "h" top: "a" }
layer_params { name: "gru" type: "gru_layer" bottom: "h" top: "gru" }
layer_params { name: "last" type: "slice_layer" bottom: "gru" top: "last"
               slice_param { concat_dim: 0 slices { offset: 48 shape: 12 } } }
layer_params { name: "user" type: "add_layer" bottom: "u" bottom: "last" top: "user" }
layer_params { name: "fc1" type: "inner_product_layer_ex" bottom: "a" bottom: "user" top: "fc1" }
layer_params { name: "act1" type: "sigmoid_layer" bottom: "fc1" top: "act1" }
layer_params { name: "fc2" type: "inner_product_layer" bottom: "act1" top: "fc2" }
layer_params { name: "act2" type: "tanh_layer" bottom: "fc2" top: "act2" }
layer_params { name: "score" type: "inner_product_layer" bottom: "act2" top: "score" }
)";
constexpr char kInputs[] =
    "inputs { name: \"u\" level: INPUT_LEVEL_USER row_shape: 12 }\n"
    "inputs { name: \"h\" level: INPUT_LEVEL_USER row_shape: [5, 12] }\n"
    "inputs { name: \"a\" level: INPUT_LEVEL_AD row_shape: 21 }\n";

std::vector<float> MadeUp(int64_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-0.5, 0.5);
  std::vector<float> values(size);
  for (float& v : values) v = value(random);
  return values;
}

std::string Weights() {
  std::string text;
  uint32_t seed = 1;
  const auto add = [&](const char* name, const std::vector<std::vector<int64_t>>& shapes) {
    absl::StrAppend(&text, "layer_weights_params { name: \"", name, "\"");
    for (const std::vector<int64_t>& shape : shapes) {
      absl::StrAppend(&text, " blob_datas {");
      int64_t size = 1;
      for (const int64_t d : shape) {
        absl::StrAppend(&text, " shape: ", d);
        size *= d;
      }
      for (const float v : MadeUp(size, seed++)) absl::StrAppend(&text, " data: ", v);
      absl::StrAppend(&text, " }");
    }
    absl::StrAppend(&text, " }\n");
  };
  add("gru", {{12, 36}, {12, 36}, {36}, {36}});
  add("fc1", {{kAd, 40}, {kUser, 40}, {40}});
  add("fc2", {{40, 20}, {20}});
  add("score", {{20, 1}, {1}});
  return text;
}

class PrecisionTest : public ::testing::Test {
 protected:
  PrecisionTest() { UseOneThread(); }
  absl::StatusOr<std::unique_ptr<const Model>> Load(const std::string& manifest) {
    fs::create_directories(temp_.File("m/1"));
    temp_.Write("m/1/graph_ulf.txt", kGraph);
    temp_.Write("m/1/weights.pb", Weights());
    temp_.Write("m/1/model.textproto", absl::StrCat(kInputs, manifest));
    return Model::Load({.directory = temp_.File("m/1")});
  }
  std::unique_ptr<const Model> Loaded(const std::string& manifest) {
    auto model = Load(manifest);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::string Error(const std::string& manifest) {
    const auto model = Load(manifest);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << manifest;
    return std::string(model.status().message());
  }
  std::vector<float> Scores(const Model& model) {
    std::vector<float> u = MadeUp(kUser, 91), h = MadeUp(kSteps * kUser, 92),
                       a = MadeUp(kAds * kAd, 93);
    const std::vector<NamedTensor> inputs = {{"u", {DType::kFloat32, {1, kUser}, u.data()}},
                                             {"h", {DType::kFloat32, {1, kSteps, kUser}, h.data()}},
                                             {"a", {DType::kFloat32, {kAds, kAd}, a.data()}}};
    RunResult result;
    const absl::Status status = model.Run(inputs, {}, workspace_, result);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(result.stats.optimised);
    return {result.outputs[0].f32(), result.outputs[0].f32() + kAds};
  }
  // Of the steps with products with weights, by the first layer that they stand for.
  static std::map<std::string, std::string> Precisions(const Model& model) {
    std::map<std::string, std::string> precisions;
    const PlanInfo plan = *model.OptimisedPlan();
    for (const PlanStep& step : plan.steps) {
      if (!step.precision.empty()) precisions[step.name] = step.precision;
    }
    return precisions;
  }
  static double Difference(const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
    return most;
  }

  TempDir temp_;
  Workspace workspace_;
};

constexpr Precision kRounded[] = {Precision::kBf16, Precision::kInt8};

std::string Asks(Precision precision) {
  return absl::StrCat("precision: PRECISION_", absl::AsciiStrToUpper(Name(precision)), "\n");
}

// What a step has where its layers are asked for `precision`: in int8 "score" is too narrow.
std::string Computed(Precision precision, const std::string& step) {
  const bool narrow = precision == Precision::kInt8 && step == "score";
  return Has(precision) && !narrow ? std::string(Name(precision)) : "fp32";
}

TEST_F(PrecisionTest, IsThatOfTheModelAndItsLayers) {
  const auto plain = Loaded("");
  const std::vector<float> exact = Scores(*plain);
  for (const auto& [step, precision] : Precisions(*plain)) EXPECT_EQ(precision, "fp32") << step;
  EXPECT_EQ(Difference(Scores(*Loaded("precision: PRECISION_FP32")), exact), 0);

  for (const Precision asked : kRounded) {
    SCOPED_TRACE(Name(asked));
    if (!Has(asked)) continue;
    const auto all = Loaded(Asks(asked));
    EXPECT_THAT(all->info().notices, IsEmpty());
    EXPECT_EQ(Precisions(*all).size(), Precisions(*plain).size());
    for (const auto& [step, precision] : Precisions(*all)) {
      EXPECT_EQ(precision, Computed(asked, step)) << step;
    }
    // Sums of 40 terms of size 0.1, each wrong by up to 2^-7 of itself.
    const double moved = Difference(Scores(*all), exact);
    EXPECT_GT(moved, 1e-5) << "nothing was rounded: the test is void";
    EXPECT_LT(moved, 0.01);
    // The same in every load.
    EXPECT_EQ(Difference(Scores(*Loaded(Asks(asked))), Scores(*all)), 0);

    const auto one = Loaded(absl::StrCat("layer_precision { layers: 'fc2' ", Asks(asked), " }"));
    for (const auto& [step, precision] : Precisions(*one)) {
      EXPECT_EQ(precision, step == "fc2" ? Name(asked) : "fp32") << step;
    }
    const double moved_by_one = Difference(Scores(*one), exact);
    EXPECT_GT(moved_by_one, 0);
    EXPECT_LT(moved_by_one, 0.01);

    const auto most = Loaded(absl::StrCat(
        Asks(asked), "layer_precision { layers: ['gru', 'score'] precision: PRECISION_FP32 }"));
    for (const auto& [step, precision] : Precisions(*most)) {
      const bool exempt = step.rfind("gru", 0) == 0 || step == "score";
      EXPECT_EQ(precision, exempt ? "fp32" : Name(asked)) << step;
    }
  }
}

TEST_F(PrecisionTest, LayersDiffer) {
  const auto model = Loaded(absl::StrCat(Asks(Precision::kInt8), "layer_precision { layers: 'fc2' ",
                                         Asks(Precision::kBf16), " }\n"));
  for (const auto& [step, precision] : Precisions(*model)) {
    const Precision asked = step == "fc2" ? Precision::kBf16 : Precision::kInt8;
    EXPECT_EQ(precision, Computed(asked, step)) << step;
  }
  EXPECT_LT(Difference(Scores(*model), Scores(*Loaded(""))), 0.01);
}

TEST_F(PrecisionTest, SaysWhichNamedLayerStaysInFp32) {
  if (!Has(Precision::kInt8)) GTEST_SKIP() << "no " << InstructionsOf(Precision::kInt8);
  const auto model =
      Loaded(absl::StrCat("layer_precision { layers: 'score' ", Asks(Precision::kInt8), " }"));
  EXPECT_THAT(model->info().notices,
              ElementsAre(HasSubstr("layer 8 \"score\" (inner_product_layer) is computed in fp32, "
                                    "not in int8: ")));
}

TEST_F(PrecisionTest, AutoLoadsAndNamesWhatItTook) {
  const auto model = Loaded("precision: PRECISION_AUTO");
  EXPECT_LT(Difference(Scores(*model), Scores(*Loaded(""))), 0.01);
  for (const auto& [step, precision] : Precisions(*model)) {
    EXPECT_TRUE(precision == "fp32" || precision == "bf16") << step;
  }
}

TEST_F(PrecisionTest, GoesBeforeTheBackend) {
  for (const Precision asked : kRounded) {
    const auto model = Loaded(absl::StrCat(
        "backend: BACKEND_ONEDNN\nlayer_precision { layers: 'fc2' ", Asks(asked), " }"));
    const PlanInfo plan = *model->OptimisedPlan();
    for (const PlanStep& step : plan.steps) {
      if (step.precision.empty()) continue;
      const bool rounded = step.name == "fc2" && Has(asked);
      EXPECT_EQ(step.precision, rounded ? Name(asked) : "fp32") << step.name;
      EXPECT_EQ(step.backend, rounded ? "native" : "onednn") << step.name;
    }
    EXPECT_LT(Difference(Scores(*model), Scores(*Loaded(""))), 0.01);
  }
}

TEST_F(PrecisionTest, IsFp32WithoutTheInstructions) {
  for (const Precision asked : kRounded) {
    if (Has(asked)) continue;
    const auto model = Loaded(Asks(asked));
    EXPECT_THAT(model->info().notices,
                ElementsAre(HasSubstr(absl::StrCat("what is to be in ", Name(asked),
                                                   " is computed in fp32: this machine has no ",
                                                   InstructionsOf(asked)))));
    EXPECT_EQ(Difference(Scores(*model), Scores(*Loaded(""))), 0);
  }
}

TEST_F(PrecisionTest, RefusesWhatItCannotDo) {
  const std::string prefix = "model \"m\" v1: manifest: layer_precision names ";
  const auto layers = [](absl::string_view names, absl::string_view precision = "BF16") {
    return absl::StrCat("layer_precision { layers: [", names, "] precision: PRECISION_", precision,
                        " }\n");
  };
  EXPECT_EQ(Error(layers("'fc'")), prefix + "\"fc\", which is no layer of the graph");
  EXPECT_EQ(Error(layers("''")), prefix + "\"\", which is no layer of the graph");
  EXPECT_EQ(Error(layers("'fc1', 'fc1'")), prefix + "\"fc1\" twice");
  EXPECT_EQ(Error(layers("'fc1'") + layers("'fc1'", "FP32")), prefix + "\"fc1\" twice");
  for (const char* precision : {"BF16", "AUTO", "FP32", "INT8"}) {
    EXPECT_EQ(Error(layers("'act1'", precision)),
              prefix +
                  "layer 5 \"act1\" (sigmoid_layer), a type without products with weights; "
                  "these are: inner_product_layer, inner_product_layer_ex, gru_layer, lstm_layer, "
                  "rnn_layer");
    EXPECT_EQ(Error("double_layers: 'fc2'\n" + layers("'fc2'", precision)),
              prefix +
                  "layer 6 \"fc2\" (inner_product_layer), which double_layers has computed in "
                  "double; want one of them");
  }
  EXPECT_THAT(Error("precision: PRECISION_INT4"), HasSubstr("PRECISION_INT4"));
  // The other layers are in bf16 as asked, without a word.
  const auto model = Loaded("double_layers: 'fc2'\nprecision: PRECISION_BF16");
  EXPECT_EQ(model->info().notices.size(), Has(Precision::kBf16) ? 0 : 1);
}

}  // namespace
}  // namespace ulfd::engine
