// `ulf quantise` on made-up clicks: what it prints and writes, and what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/recording/recording_file.h"
#include "base/text_file.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "engine/weights/npz.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/predict.pb.h"
#include "proto/recording.pb.h"
#include "tests/testing/temp_dir.h"
#include "tools/cli/commands.h"

namespace ulfd::tools {
namespace {

namespace fs = std::filesystem;
using engine::NpyArray;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kColumns = 32, kAds = 200;

constexpr char kGraph[] = R"(
layer_params { type: "input_layer" top: "x" }
layer_params { name: "fc1" type: "inner_product_layer" bottom: "x" top: "fc1" }
layer_params { name: "act1" type: "tanh_layer" bottom: "fc1" top: "act1" }
layer_params { name: "fc2" type: "inner_product_layer" bottom: "act1" top: "fc2" }
layer_params { name: "act2" type: "tanh_layer" bottom: "fc2" top: "act2" }
layer_params { name: "fc3" type: "inner_product_layer" bottom: "act2" top: "fc3" }
layer_params { name: "score" type: "sigmoid_layer" bottom: "fc3" top: "score" }
)";

class QuantiseTest : public ::testing::TestWithParam<engine::Precision> {
 protected:
  void SetUp() override {
    if (!engine::Has(GetParam())) {
      GTEST_SKIP() << "no " << engine::InstructionsOf(GetParam()) << ", or ULFD_ISA leaves it out";
    }
    engine::UseOneThread();
    fs::create_directories(version_);
    fs::create_directories(dir_.File("requests"));
    dir_.Write("m/1/graph_ulf.txt", kGraph);
    dir_.Write(
        "m/1/weights.pb",
        absl::StrCat("layer_weights_params { name: 'fc1' ", Blob({kColumns, 40}), Blob({40}),
                     " }\nlayer_weights_params { name: 'fc2' ", Blob({40, 20}), Blob({20}),
                     " }\nlayer_weights_params { name: 'fc3' ", Blob({20, 1}), Blob({1}), " }\n"));
    dir_.Write(
        "m/1/model.textproto",
        "# Whose it is.\ninputs { name: 'x' level: INPUT_LEVEL_AD row_shape: 32 }  # Columns.\n"
        "golden_tolerance: 1e-5\nnon_finite: NON_FINITE_POLICY_REFUSE");
  }
  std::string Blob(const std::vector<int64_t>& shape) {
    std::string text = "blob_datas {";
    int64_t size = 1;
    for (const int64_t d : shape) {
      absl::StrAppend(&text, " shape: ", d);
      size *= d;
    }
    for (int64_t i = 0; i < size; ++i) absl::StrAppend(&text, " data: ", Random());
    return text + " } ";
  }
  float Random() { return std::uniform_real_distribution<float>(-0.6f, 0.6f)(random_); }
  std::unique_ptr<const engine::Model> Load() {
    auto model = engine::Model::Load({.directory = version_});
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }

  // A request whose ads are clicked on by the model's own probabilities, as r<number>.npz.
  void WriteRequest(const engine::Model& model, int number) {
    std::vector<float> x(kAds * kColumns), clicks;
    for (float& v : x) v = Random();
    engine::Workspace workspace;
    engine::RunResult result;
    const std::vector<engine::NamedTensor> inputs = {
        {"x", {engine::DType::kFloat32, {kAds, kColumns}, x.data()}}};
    ASSERT_TRUE(model.Run(inputs, {}, workspace, result).ok());
    for (int64_t i = 0; i < kAds; ++i) {
      clicks.push_back(std::bernoulli_distribution(result.outputs[0].f32()[i])(random_) ? 1 : 0);
    }
    Save(number, {{"x", NpyArray::FromFloat32({kAds, kColumns}, x.data())},
                  {"clicks", NpyArray::FromFloat32({kAds}, clicks.data())}});
  }
  void Save(int number, const engine::NpzArrays& arrays) {
    const std::string path = dir_.File(absl::StrCat("requests/r", number, ".npz"));
    ASSERT_TRUE(engine::WriteNpz(path, arrays).ok());
  }
  // What it printed.
  std::string Quantise(std::vector<std::string> flags, absl::Status* status) {
    flags.insert(flags.begin(), {version_, absl::StrCat("--precision=", engine::Name(GetParam()))});
    flags.push_back("--requests=" + dir_.File("requests"));
    ::testing::internal::CaptureStdout();
    *status = RunQuantise(flags);
    return ::testing::internal::GetCapturedStdout();
  }
  std::string Error(const std::vector<std::string>& flags) {
    absl::Status status;
    Quantise(flags, &status);
    EXPECT_FALSE(status.ok());
    return std::string(status.message());
  }

  TempDir dir_;
  const std::string version_ = dir_.File("m/1"), written_ = dir_.File("model.textproto");
  std::mt19937 random_{5};
};

INSTANTIATE_TEST_SUITE_P(All, QuantiseTest,
                         ::testing::Values(engine::Precision::kBf16, engine::Precision::kInt8),
                         [](const ::testing::TestParamInfo<engine::Precision>& info) {
                           return std::string(engine::Name(info.param));
                         });

TEST_P(QuantiseTest, ReportsAndWritesTheManifest) {
  const auto exact = Load();
  for (int i = 0; i < 60; ++i) WriteRequest(*exact, i);
  absl::Status status;
  const std::string report = Quantise({"--labels=clicks", "--output=" + written_}, &status);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(report, HasSubstr("60 requests, 12000 ads"));
  std::smatch all;
  ASSERT_TRUE(std::regex_search(report, all,
                                std::regex(R"(all +(\S+) +(\S+) +(\S+) +(\S+) +(\S+) +(\S+))")))
      << report;
  double max = 0, mean = 0, rank = 0, auc = 0, auc_moves = 0;
  ASSERT_TRUE(absl::SimpleAtod(all[1].str(), &max) && absl::SimpleAtod(all[2].str(), &mean) &&
              absl::SimpleAtod(all[3].str(), &rank) && absl::SimpleAtod(all[5].str(), &auc) &&
              absl::SimpleAtod(all[6].str(), &auc_moves));
  EXPECT_GT(max, 1e-5);
  const bool int8 = GetParam() == engine::Precision::kInt8;
  EXPECT_LT(max, int8 ? 0.02 : 0.01);
  EXPECT_LT(mean, max);
  EXPECT_GT(rank, 0.999);
  EXPECT_GT(auc, 0.55) << "clicks say nothing: the test is void";
  EXPECT_LT(std::abs(auc_moves), int8 ? 0.001 : 0.0005);

  // The manifest is the model's with three fields more, and golden checks pass with it.
  const auto text = ::ulfd::ReadTextFile(written_);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, StartsWith("# Whose it is.\ninputs { name: 'x' level: INPUT_LEVEL_AD "
                                "row_shape: 32 }  # Columns.\nnon_finite: "
                                "NON_FINITE_POLICY_REFUSE\ngolden_tolerance"));
  EXPECT_THAT(*text, HasSubstr(int8 ? "precision: PRECISION_INT8" : "precision: PRECISION_BF16"));
  EXPECT_THAT(*text, Not(HasSubstr("layer_precision")));
  std::smatch tolerance;
  ASSERT_TRUE(std::regex_search(*text, tolerance, std::regex(R"(golden_tolerance: (\S+))")));
  EXPECT_GE(std::stod(tolerance[1]), 1.85 * max);
  EXPECT_LE(std::stod(tolerance[1]), 2.4 * max + 1e-4);
  fs::copy_file(written_, version_ + "/model.textproto", fs::copy_options::overwrite_existing);
  const auto model = Load();
  int rounded = 0;
  const engine::PlanInfo plan = *model->OptimisedPlan();
  for (const engine::PlanStep& step : plan.steps) {
    rounded += step.precision == engine::Name(GetParam());
  }
  EXPECT_EQ(rounded, int8 ? 2 : 3) << "in int8 a layer of one column stays in fp32";
  // Measured again it says the same, whatever the manifest asks for by now.
  EXPECT_EQ(Quantise({"--labels=clicks"}, &status), report);
}

TEST_P(QuantiseTest, LeavesTheWorstLayersInFp32) {
  const auto exact = Load();
  for (int i = 0; i < 4; ++i) WriteRequest(*exact, i);
  absl::Status status;
  std::string report = Quantise({"--labels=clicks"}, &status);
  ASSERT_TRUE(status.ok()) << status;
  // Between the error of all layers and the smallest of one alone.
  std::map<double, std::string> errors;
  std::smatch found;
  for (const char* layer : {"fc1", "fc2", "fc3"}) {
    if (!std::regex_search(report, found, std::regex(absl::StrCat(layer, " +(\\S+)")))) continue;
    errors[std::stod(found[1])] = layer;
  }
  EXPECT_EQ(errors.size(), GetParam() == engine::Precision::kInt8 ? 2 : 3) << report;
  ASSERT_TRUE(std::regex_search(report, found, std::regex(R"(all +(\S+))")));
  const double least = errors.begin()->first;
  ASSERT_LT(1.1 * least, std::stod(found[1]));
  report = Quantise(
      {"--labels=clicks", "--output=" + written_, absl::StrCat("--max_error=", 1.1 * least)},
      &status);
  ASSERT_TRUE(status.ok()) << status;
  const std::string worst = errors.rbegin()->second;
  EXPECT_THAT(report, HasSubstr("(fp32) " + worst));
  const auto text = ::ulfd::ReadTextFile(written_);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, HasSubstr(absl::StrCat("layers: \"", worst, "\"")));
  // Once more: what it wrote goes, and only that.
  fs::copy_file(written_, version_ + "/model.textproto", fs::copy_options::overwrite_existing);
  Quantise({"--labels=clicks", "--max_error=1", "--output=" + written_}, &status);
  ASSERT_TRUE(status.ok()) << status;
  const auto again = ::ulfd::ReadTextFile(written_);
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(*again, StartsWith("# Whose it is.\n"));
  EXPECT_THAT(*again, Not(HasSubstr("layer_precision")));
  EXPECT_THAT(Error({"--labels=clicks", "--max_error=0", "--output=" + dir_.File("none")}),
              HasSubstr("every layer moves scores by more than --max_error of 0"));
  EXPECT_FALSE(fs::exists(dir_.File("none")));
}

TEST_P(QuantiseTest, TakesWhatTheDaemonRecorded) {
  const std::string file = dir_.File("requests/m/1.ulfrec");
  {
    auto writer = recording::RecordingWriter::Create(file);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (int call = 0; call < 3; ++call) {
      v1::PredictRequest request;
      v1::Feature& x = *request.add_ad_features();
      x.set_name("x");
      for (const int64_t d : {int64_t{4}, kColumns}) x.mutable_dense()->add_shape(d);
      for (int64_t i = 0; i < 4 * kColumns; ++i) x.mutable_dense()->add_floats(Random());
      recording::v1::Recording record;
      record.set_api(recording::v1::API_NATIVE);
      record.set_request(request.SerializeAsString());
      ASSERT_TRUE(writer->Append(record.SerializeAsString()).ok());
    }
  }
  fs::resize_file(file, fs::file_size(file) - 1);
  absl::Status status;
  ::testing::internal::CaptureStderr();
  const std::string report = Quantise({}, &status);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("1.ulfrec: "));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(report, HasSubstr("2 requests, 8 ads"));
}

TEST_P(QuantiseTest, RefusesWhatSaysNothing) {
  EXPECT_THAT(Error({}), HasSubstr("--requests: 0 requests, want at least 2"));
  WriteRequest(*Load(), 1);
  EXPECT_THAT(Error({"--labels=clicks"}), HasSubstr("--requests: 1 request, want at least 2"));
  EXPECT_THAT(Error({}), HasSubstr("the model has no input \"clicks\""));
  std::vector<float> x(2 * kColumns, 0.5f);
  const std::vector<float> clicks = {1, 0, 1};
  const auto save = [&](int64_t labels) {
    Save(2, {{"x", NpyArray::FromFloat32({2, kColumns}, x.data())},
             {"clicks", NpyArray::FromFloat32({labels}, clicks.data())}});
  };
  save(3);
  EXPECT_THAT(Error({"--labels=clicks"}), HasSubstr("r2.npz: 3 labels for 2 ads"));
  EXPECT_THAT(Error({"--labels=bought"}), HasSubstr("no array \"bought\" (--labels)"));
  x[kColumns + 3] = std::nanf("");
  save(2);
  EXPECT_THAT(Error({"--labels=clicks"}),
              HasSubstr("r2.npz: input \"x\": element 35 is nan, want finite numbers"));
  x[kColumns + 3] = 0;
  save(2);
  EXPECT_THAT(Error({"--labels=clicks", "--score=scores"}),
              HasSubstr("no output \"scores\"; there are \"score\""));
  EXPECT_THAT(Error({"--labels=clicks", "--column=1"}),
              HasSubstr("output \"score\", float32 [200, 1]: want a float32 column 1"));
}

}  // namespace
}  // namespace ulfd::tools
