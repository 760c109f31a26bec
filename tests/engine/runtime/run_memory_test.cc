// What a run may take is known before it takes it.
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/load_scope.h"
#include "engine/runtime/model.h"
#include "engine/runtime/workspace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_case.h"
#include "tests/testing/model_directories.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_model.h"

namespace ulfd::engine {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLimit = 64 * kMiB;

class RunMemoryTest : public testing::ModelDirectories {
 protected:
  absl::StatusOr<std::unique_ptr<const Model>> Load(const std::string& graph,
                                                    const std::string& manifest = "") {
    std::filesystem::remove_all(base_);
    ulfd::testing::GraphCase model;
    model.name = "m";
    model.graph = graph;
    model.manifest = manifest;
    return Model::Load({.directory = ulfd::testing::WriteModelDirectory(model, base_)});
  }

  // Runs the model over tensors of zeros, or of no data where they are empty or too large to be.
  absl::Status Run(const Model& model, const std::map<std::string, TensorDims>& inputs) {
    std::vector<NamedTensor> tensors;
    std::vector<std::vector<float>> data;
    for (const auto& [name, dims] : inputs) {
      Tensor tensor{DType::kFloat32, dims, nullptr};
      if (CheckDims(dims).ok() && tensor.elements() <= kMiB) {
        tensor.data = data.emplace_back(tensor.elements(), 0.0f).data();
      }
      tensors.push_back({name, tensor});
    }
    return model.Run(tensors, {.max_memory_bytes = kLimit}, workspace_, result_);
  }

  Workspace workspace_;
  RunResult result_;
};

constexpr char kSum[] = R"(
layer_params { type: "input_layer" top: "x" }
layer_params { name: "s" type: "sum_layer" bottom: "x" top: "s" sum_param { dim: 1 } }
)";

// Each is twice as wide as the one before.
std::string Doublings(int n) {
  std::string graph = R"(layer_params { type: "input_layer" top: "c0" })";
  for (int i = 1; i <= n; ++i) {
    absl::StrAppend(&graph, "layer_params { name: \"c", i, "\" type: \"concat_layer\" bottom: \"c",
                    i - 1, "\" bottom: \"c", i - 1, "\" top: \"c", i,
                    "\" concat_param { dim: 1 } }\n");
  }
  return graph;
}

TEST_F(RunMemoryTest, ShapesThatCannotBeAreRefused) {
  const auto model = Load(kSum);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const TensorDims& dims :
       {TensorDims{1, 0, int64_t{1} << 40, 1 << 22}, TensorDims{1, -1, 4},
        TensorDims{int64_t{1} << 32, int64_t{1} << 32}, TensorDims{1, INT64_MAX, 0}}) {
    const absl::Status status = Run(**model, {{"x", dims}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("input \"x\": shape"));
  }
}

TEST_F(RunMemoryTest, TensorsBeyondTheLimitAreRefusedByName) {
  const auto model = Load(kSum);
  ASSERT_TRUE(model.ok()) << model.status();
  // Empty ones, too: the sum over nothing has 2^40 zeros, or takes as many steps.
  for (const TensorDims& dims :
       {TensorDims{1, 0, int64_t{1} << 40}, TensorDims{1, (int64_t{1} << 40) - 1, 0}}) {
    const absl::Status status = Run(**model, {{"x", dims}});
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"x\""));
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("want at most ", kLimit)));
  }
  EXPECT_LT(workspace_.bytes(), kMiB);
  EXPECT_TRUE(Run(**model, {{"x", {1, 0, 7}}}).ok());
}

TEST_F(RunMemoryTest, ProductsOfSmallInputsAreRefusedByName) {
  const auto model = Load(R"(
layer_params { type: "input_layer" top: "a" top: "b" }
layer_params { name: "m" type: "multiply_layer" bottom: "a" bottom: "b" top: "m" }
)");
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status = Run(**model, {{"a", {1, kMiB, 1}}, {"b", {1, 1, kMiB}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tensor \"m\" of [1, 1048576, 1048576]: 4398046511104 bytes"));
  EXPECT_LT(workspace_.bytes(), kMiB);
}

TEST_F(RunMemoryTest, OutputsAreKnownBeforeTheRun) {
  for (const char* manifest : {"", R"(inputs { name: "c0" level: INPUT_LEVEL_AD row_shape: 6 })"}) {
    SCOPED_TRACE(manifest);
    const auto model = Load(Doublings(3), manifest);
    ASSERT_TRUE(model.ok()) << model.status();
    std::vector<float> data(12, 0.0f);
    const std::function<absl::Status(absl::Span<const Tensor>)> check =
        [](absl::Span<const Tensor> outputs) {
          return absl::UnknownError(ToString(outputs[0].dims));
        };
    Workspace workspace;
    const absl::Status status = (*model)->Run({{"c0", {DType::kFloat32, {2, 6}, data.data()}}},
                                              {.check_outputs = &check}, workspace, result_);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(std::string(status.message()), HasSubstr("[2, 48]"));
    EXPECT_EQ(workspace.bytes(), 0);
  }
}

TEST_F(RunMemoryTest, AStatedRowIsStatedWithoutItsLevel) {
  const auto model = Load(kSum, R"(inputs { name: "x" row_shape: 8 })");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->info().inputs[0].shape_stated);
  EXPECT_FALSE((*model)->info().inputs[0].stated);
  EXPECT_EQ((*model)->info().inputs[0].shape[1], Dim::Of(8));
}

TEST_F(RunMemoryTest, AllTensorsTogetherCount) {
  // No tensor is beyond the limit, but they are together.
  const auto model = Load(Doublings(21));
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status = Run(**model, {{"c0", {1, 6}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("largest tensor is \"c21\""));
  EXPECT_LT(workspace_.bytes(), kMiB);
}

// With the width of the input in the manifest.
TEST_F(RunMemoryTest, RowsOfAProvedModelCount) {
  const auto model =
      Load(Doublings(21), R"(inputs { name: "c0" level: INPUT_LEVEL_AD row_shape: 6 })");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE((*model)->info().row_separable);
  const absl::Status status = Run(**model, {{"c0", {2, 6}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("want at most"));
  EXPECT_LT(workspace_.bytes(), kMiB);
}

TEST_F(RunMemoryTest, GraphsWhoseSizesOverflowAreRefusedAtLoad) {
  const auto model =
      Load(Doublings(60), R"(inputs { name: "c0" level: INPUT_LEVEL_AD row_shape: 6 })");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("is not possible"));
}

// Steps that are proved run over rows by their bytes: a tensor without any has no price there.
TEST_F(RunMemoryTest, EmptyTensorsOfAModelHaveTheirPrice) {
  const auto model = Load(R"(
layer_params { name: "c" type: "constant_layer" top: "c"
               constant_param { blob_data { shape: [1000000, 1000000, 0] } } }
layer_params { name: "s" type: "softmax_layer" bottom: "c" top: "s" })");
  ASSERT_TRUE(model.ok()) << model.status();
  const absl::Status status =
      (*model)->RunWarmup(1, {.max_memory_bytes = kLimit}, workspace_, result_);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("[1000000, 1000000, 0]"));
}

TEST_F(RunMemoryTest, ShapesOfALargeModelAreNotKeptByTheirNumberAlone) {
  std::string graph = "layer_params { type: 'input_layer' top: 'v0' }";
  for (int i = 0; i < 3000; ++i) {
    absl::StrAppend(&graph, "layer_params { name: 'r", i, "' type: 'relu_layer' bottom: 'v", i,
                    "' top: 'v", i + 1, "' }");
  }
  const auto model = Load(graph);
  ASSERT_TRUE(model.ok()) << model.status();
  const LoadScope scope({});
  for (int64_t n = 1; n <= 30; ++n) ASSERT_TRUE(Run(**model, {{"v0", {1, n}}}).ok());
  EXPECT_LT(scope.peak_bytes(), 8 * kMiB);
}

TEST_F(RunMemoryTest, MemoryOfAnUnusualRequestGoesBack) {
  const auto model = Load(kSum);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(Run(**model, {{"x", {1, 2, kMiB / 2}}}).ok());
  const int64_t most = workspace_.bytes();
  EXPECT_GE(most, 2 * kMiB);
  EXPECT_TRUE(workspace_.Shrink());  // It was used since.
  EXPECT_EQ(workspace_.bytes(), most);
  ASSERT_TRUE(Run(**model, {{"x", {1, 2, 3}}}).ok());
  EXPECT_FALSE(workspace_.Shrink());
  EXPECT_LT(workspace_.bytes(), kMiB);
  EXPECT_TRUE(Run(**model, {{"x", {1, 2, 3}}}).ok());
}

TEST(Arena, MemoryThatIsNotThereIsAnError) {
  Arena arena;
  EXPECT_EQ(arena.Reserve(int64_t{1} << 60).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(arena.bytes(), 0);
  EXPECT_EQ(arena.Reserve(INT64_MAX).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(arena.Reserve(100).ok());
}

// Wherever it is refused something, it ends with an error that says so.
TEST(LoadMemoryTest, ALoadEndsWhereverItsMemoryDoes) {
  const TempDir dir;
  ulfd::testing::WriteTinyModel(dir.path());
  int refused = 0;
  for (int64_t bytes = 0;; bytes += 509) {
    ASSERT_LT(bytes, 8 * kMiB);
    const LoadScope scope({.max_memory_bytes = bytes});
    const absl::Status status =
        WithinMemory([&] { return Model::Load({.directory = dir.path()}).status(); });
    if (status.ok()) break;
    ++refused;
    EXPECT_TRUE(absl::IsResourceExhausted(LoadScope::Check())) << bytes << ": " << status;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace ulfd::engine
