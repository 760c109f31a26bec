// SPDX-License-Identifier: Apache-2.0
#include "tools/model/npz_inputs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/runtime/request_rows.h"
#include "engine/tensor/numbers.h"
#include "engine/weights/npy.h"

namespace ulfd::tools {
namespace {

using engine::DType;
using engine::Fractions;
using engine::NpyArray;

engine::NumberArray NumbersOf(const NpyArray& array) {
  return {array.type, {array.dims.begin(), array.dims.end()}, array.bytes.data()};
}

engine::Tensor ViewOf(const engine::InputInfo& input, NpyArray& array) {
  engine::Tensor tensor{.dtype = input.dtype, .data = array.bytes.data()};
  tensor.dims.assign(array.dims.begin(), array.dims.end());
  if (input.feature < 0) input.FitRows(tensor.dims);
  return tensor;
}

// Leaves one row of the user's.
absl::Status SettleRows(const engine::ModelInfo& info, engine::NpzArrays& arrays) {
  std::vector<engine::Tensor> tensors(info.inputs.size());
  std::vector<engine::Tensor*> given(info.inputs.size(), nullptr);
  for (size_t i = 0; i < given.size(); ++i) {
    const auto array = arrays.find(info.inputs[i].name);
    if (array == arrays.end()) continue;
    tensors[i] = ViewOf(info.inputs[i], array->second);
    given[i] = &tensors[i];
  }
  RETURN_IF_ERROR(engine::SettleRows(info, given).status());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == nullptr) continue;
    NpyArray& array = arrays[info.inputs[i].name];
    array.dims.assign(tensors[i].dims.begin(), tensors[i].dims.end());
    array.bytes.resize(tensors[i].bytes());
  }
  return absl::OkStatus();
}

std::vector<MatrixPart> PartsOf(const engine::MatrixInfo& matrix, const engine::ModelInfo& info) {
  std::vector<MatrixPart> parts;
  for (const engine::MatrixInfo::Part& part : matrix.parts) {
    MatrixPart& named = parts.emplace_back();
    named.sparse = part.feature >= 0;
    named.columns = part.columns;
    if (named.sparse) {
      named.name = info.features[part.feature].name;
      named.padding = info.features[part.feature].padding_id;
      continue;
    }
    named.name = info.inputs[part.input].name;
    named.dtype = info.inputs[part.input].dtype;
    const auto width = static_cast<int64_t>(part.columns.size());
    const engine::TensorDims dims =
        info.inputs[part.input].DimsOf(1, width == 0 ? matrix.columns : width);
    named.row_shape.assign(dims.begin() + 1, dims.end());
  }
  return parts;
}

// The numbers of these columns in a type of the engine's.
absl::StatusOr<NpyArray> MakeArray(const engine::NumberArray& numbers,
                                   absl::Span<const int64_t> columns, Fractions fractions,
                                   std::vector<int64_t> dims, DType dtype, absl::string_view what) {
  switch (dtype) {
    case DType::kFloat32: {
      ASSIGN_OR_RETURN(const auto floats,
                       engine::NumbersAs<float>(numbers, columns, fractions, what));
      return NpyArray::FromFloat32(std::move(dims), floats.data());
    }
    case DType::kInt32: {
      ASSIGN_OR_RETURN(const auto ints,
                       engine::NumbersAs<int32_t>(numbers, columns, fractions, what));
      return NpyArray::FromInt32(std::move(dims), ints.data());
    }
    case DType::kInt64:
      break;
  }
  ASSIGN_OR_RETURN(const auto ints, engine::NumbersAs<int64_t>(numbers, columns, fractions, what));
  return NpyArray::FromInt64(std::move(dims), ints.data());
}

}  // namespace

absl::StatusOr<NpyArray> ConvertInput(const std::string& name, NpyArray array, DType wanted) {
  if (array.type == engine::TypeOf(wanted)) return array;
  return MakeArray(NumbersOf(array), {}, Fractions::kRefuse, array.dims, wanted,
                   absl::StrCat("input \"", name, "\""));
}

absl::Status CheckInputNames(const engine::NpzArrays& arrays,
                             const std::vector<std::string>& known) {
  std::vector<std::string> unknown;
  for (const auto& [name, array] : arrays) {
    if (std::find(known.begin(), known.end(), name) == known.end()) unknown.push_back(name);
  }
  if (unknown.empty()) return absl::OkStatus();
  return InvalidArgument("the model has no input \"", absl::StrJoin(unknown, "\", \""),
                         "\"; it has \"", absl::StrJoin(known, "\", \""), "\"");
}

absl::Status SplitMatrix(const std::string& matrix, int64_t columns,
                         const std::vector<MatrixPart>& parts, engine::NpzArrays& arrays) {
  auto given = arrays.extract(matrix);
  if (given.empty()) return absl::OkStatus();
  const NpyArray& array = given.mapped();
  const std::string what = absl::StrCat("input \"", matrix, "\"");
  engine::NumberArray numbers = NumbersOf(array);
  if (columns > 0) engine::FitMatrix(columns, numbers.dims);
  const engine::TensorDims& dims = numbers.dims;
  if (columns == 0 && dims.size() != 1 && dims.size() != 2) {
    return InvalidArgument(what, ": ", dims.size(), " dimensions, want [rows, ids] or [rows]");
  }
  const int64_t rows = dims.empty() ? 0 : dims[0];
  if (columns > 0 && (rows == 0 || array.elements() != rows * columns)) {
    return InvalidArgument(what, ": shape [", absl::StrJoin(dims, ", "), "], want ", columns,
                           " values in each row");
  }
  for (const MatrixPart& part : parts) {
    for (const char* suffix : {".ids", ".values", ".segments"}) {
      const std::string name = absl::StrCat(part.name, part.sparse ? suffix : "");
      if (!arrays.contains(name)) continue;
      return InvalidArgument("inputs \"", matrix, "\" and \"", name, "\": want one of the two");
    }
    if (part.sparse) {
      ASSIGN_OR_RETURN(const engine::IdRows ids,
                       engine::IdRowsOf(numbers, part.columns, part.padding, what));
      arrays[part.name + ".ids"] =
          NpyArray::FromInt64({static_cast<int64_t>(ids.ids.size())}, ids.ids.data());
      arrays[part.name + ".segments"] = NpyArray::FromInt32({rows}, ids.counts.data());
    } else {
      std::vector<int64_t> shape = {rows};
      shape.insert(shape.end(), part.row_shape.begin(), part.row_shape.end());
      ASSIGN_OR_RETURN(arrays[part.name], MakeArray(numbers, part.columns, Fractions::kCut,
                                                    std::move(shape), part.dtype, what));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::NpzArrays> ReadInputs(const std::string& path,
                                             const engine::ModelInfo& info) {
  ASSIGN_OR_RETURN(engine::NpzArrays arrays, engine::ReadNpz(path));
  return Annotate(ConvertInputs(std::move(arrays), info), path);
}

absl::StatusOr<engine::NpzArrays> ConvertInputs(engine::NpzArrays arrays,
                                                const engine::ModelInfo& info) {
  std::vector<std::string> known;
  for (const engine::InputInfo& input : info.inputs) known.push_back(input.name);
  for (const engine::MatrixInfo& matrix : info.matrices) {
    RETURN_IF_ERROR(SplitMatrix(matrix.name, matrix.columns, PartsOf(matrix, info), arrays));
    known.push_back(matrix.name);
  }
  RETURN_IF_ERROR(CheckInputNames(arrays, known));
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = arrays.find(input.name);
    if (array == arrays.end()) continue;
    ASSIGN_OR_RETURN(array->second,
                     ConvertInput(input.name, std::move(array->second), input.dtype));
  }
  RETURN_IF_ERROR(SettleRows(info, arrays));
  return arrays;
}

std::vector<engine::NamedTensor> InputViews(const engine::ModelInfo& info,
                                            engine::NpzArrays& arrays) {
  std::vector<engine::NamedTensor> views;
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = arrays.find(input.name);
    if (array == arrays.end()) continue;
    views.push_back({.name = input.name, .tensor = ViewOf(input, array->second)});
  }
  return views;
}

}  // namespace ulfd::tools
