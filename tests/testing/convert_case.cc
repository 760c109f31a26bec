// A case of the converter tests.
// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/convert_case.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/runtime/model.h"
#include "engine/tensor/onednn.h"
#include "engine/weights/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace ulfd::testing {
namespace {

using engine::NpyArray;
using engine::NpzArrays;
using engine::NumberType;

engine::DType TypeOf(NumberType type) {
  if (type == NumberType::kInt64) return engine::DType::kInt64;
  return type == NumberType::kInt32 ? engine::DType::kInt32 : engine::DType::kFloat32;
}

void ExpectClose(const NpyArray& found, const NpyArray& wanted, double tolerance) {
  ASSERT_EQ(found.dims, wanted.dims);
  const std::vector<float> a = found.ToFloat32(), b = wanted.ToFloat32();
  double worst = 0;
  size_t place = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error =
        std::abs(double{a[i]} - double{b[i]}) / std::max(1.0, std::abs(double{b[i]}));
    if (error <= worst && !std::isnan(error)) continue;
    worst = std::isnan(error) ? INFINITY : error;
    place = i;
  }
  EXPECT_LE(worst, tolerance) << "element " << place << ": " << a[place] << ", want " << b[place];
}

// Row `row` of an array whose leading dimension is the rows.
NpyArray Row(const NpyArray& array, int64_t row) {
  NpyArray cut = array;
  const size_t bytes = array.bytes.size() / static_cast<size_t>(array.dims[0]);
  cut.dims[0] = 1;
  cut.bytes = array.bytes.substr(static_cast<size_t>(row) * bytes, bytes);
  return cut;
}

// The model's inputs of ad level get one row each; only cases with one id per row are cut.
NpzArrays RowInputs(const engine::ModelInfo& info, const NpzArrays& inputs, int64_t row) {
  NpzArrays cut = inputs;
  for (const engine::InputInfo& input : info.inputs) {
    const auto found = cut.find(input.name);
    if (found == cut.end()) continue;
    const bool ad = input.feature >= 0 ? info.features[input.feature].level == engine::Level::kAd
                                       : input.level == engine::Level::kAd;
    if (ad) found->second = Row(found->second, row);
  }
  return cut;
}

absl::StatusOr<NpzArrays> Score(const engine::Model& model, const NpzArrays& inputs) {
  std::vector<engine::NamedTensor> tensors;
  for (const auto& [name, array] : inputs) {
    engine::Tensor tensor{.dtype = TypeOf(array.type)};
    tensor.dims.assign(array.dims.begin(), array.dims.end());
    tensor.data = const_cast<char*>(array.bytes.data());
    tensors.push_back({.name = name, .tensor = tensor});
  }
  engine::Workspace workspace;
  engine::RunResult result;
  RETURN_IF_ERROR(model.Run(tensors, {}, workspace, result));
  NpzArrays outputs;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const engine::Tensor& tensor = result.outputs[i];
    outputs[model.info().outputs[i].name] = NpyArray::FromFloat32(
        std::vector<int64_t>(tensor.dims.begin(), tensor.dims.end()), tensor.f32());
  }
  return outputs;
}

}  // namespace

std::string ConvertCaseDir(const std::string& name) {
  return absl::StrCat(TestData(), "/convert/", name);
}

absl::StatusOr<NpzArrays> ScoreModel(const std::string& directory, const NpzArrays& inputs) {
  engine::UseOneThread();
  ASSIGN_OR_RETURN(const auto model, engine::Model::Load({.directory = directory}));
  return Score(*model, inputs);
}

void ExpectConvertCase(const std::string& name, const std::string& directory,
                       const ConvertTolerance& tolerance) {
  engine::UseOneThread();
  const auto inputs = engine::ReadNpz(ConvertCaseDir(name) + "/inputs.npz");
  const auto expected = engine::ReadNpz(ConvertCaseDir(name) + "/expected.npz");
  ASSERT_TRUE(inputs.ok()) << inputs.status();
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto model = engine::Model::Load({.directory = directory});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto all = Score(**model, *inputs);
  ASSERT_TRUE(all.ok()) << all.status();
  ASSERT_EQ(all->size(), expected->size());
  int64_t rows = 0;
  for (const auto& [output, wanted] : *expected) {
    SCOPED_TRACE(absl::StrCat(name, " output ", output));
    const auto found = all->find(output);
    ASSERT_NE(found, all->end());
    ExpectClose(found->second, wanted, tolerance.value);
    rows = std::max(rows, wanted.dims.empty() ? 0 : wanted.dims[0]);
  }
  for (int64_t row = 0; tolerance.single_rows && row < rows; ++row) {
    const auto one = Score(**model, RowInputs((*model)->info(), *inputs, row));
    ASSERT_TRUE(one.ok()) << one.status();
    for (const auto& [output, wanted] : *expected) {
      SCOPED_TRACE(absl::StrCat(name, " output ", output, " row ", row, " alone"));
      const bool per_ad = wanted.dims[0] == rows;
      ExpectClose(one->at(output), per_ad ? Row(wanted, row) : wanted, tolerance.value);
    }
  }
}

}  // namespace ulfd::testing
