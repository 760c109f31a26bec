// SPDX-License-Identifier: Apache-2.0
#include "tools/model/npz_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/tensor/matrix_columns.h"
#include "engine/weights/npy.h"

namespace ulfd::tools {
namespace {

using engine::DType;
using engine::NpyArray;
using engine::NpyType;

std::vector<double> ToDouble(const NpyArray& array) {
  std::vector<double> values(array.elements());
  if (array.type == NpyType::kFloat64) {
    if (!values.empty()) std::memcpy(values.data(), array.bytes.data(), array.bytes.size());
  } else {
    const std::vector<float> floats = array.ToFloat32();
    values.assign(floats.begin(), floats.end());
  }
  return values;
}

template <typename T>
absl::Status DoesNotFit(const std::string& name, T value, size_t index, DType wanted) {
  return InvalidArgument("input \"", name, "\": element ", index, " is ", value, ", which is no ",
                         engine::Name(wanted));
}

absl::StatusOr<std::vector<int64_t>> Integers(const std::string& name, const NpyArray& array,
                                              DType wanted) {
  std::vector<int64_t> ints = array.ToInt64();
  if (array.type != NpyType::kUint64) return ints;
  for (size_t i = 0; i < ints.size(); ++i) {
    if (ints[i] < 0) return DoesNotFit(name, static_cast<uint64_t>(ints[i]), i, wanted);
  }
  return ints;
}

absl::StatusOr<NpyArray> ToFloat(const std::string& name, const NpyArray& array) {
  const std::vector<float> floats = array.ToFloat32();
  if (engine::IsFloat(array.type)) {
    const std::vector<double> doubles = ToDouble(array);
    for (size_t i = 0; i < floats.size(); ++i) {
      if (std::isinf(floats[i]) && !std::isinf(doubles[i])) {
        return DoesNotFit(name, doubles[i], i, DType::kFloat32);
      }
    }
  } else {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ints, Integers(name, array, DType::kFloat32));
    for (size_t i = 0; i < floats.size(); ++i) {
      // 2^63 as a float stands for no int64.
      if (floats[i] >= 0x1p63f || static_cast<int64_t>(floats[i]) != ints[i]) {
        return DoesNotFit(name, ints[i], i, DType::kFloat32);
      }
    }
  }
  return NpyArray::FromFloat32(array.dims, floats.data());
}

absl::StatusOr<NpyArray> ToInteger(const std::string& name, const NpyArray& array, DType wanted) {
  if (engine::IsFloat(array.type)) {
    const std::vector<double> doubles = ToDouble(array);
    for (size_t i = 0; i < doubles.size(); ++i) {
      // Also false for NaN.
      if (!(std::abs(doubles[i]) <= 0x1p53) || doubles[i] != std::trunc(doubles[i])) {
        return DoesNotFit(name, doubles[i], i, wanted);
      }
    }
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> ints, Integers(name, array, wanted));
  if (wanted == DType::kInt64) return NpyArray::FromInt64(array.dims, ints.data());
  std::vector<int32_t> narrow(ints.size());
  for (size_t i = 0; i < ints.size(); ++i) {
    narrow[i] = static_cast<int32_t>(ints[i]);
    if (narrow[i] != ints[i]) return DoesNotFit(name, ints[i], i, wanted);
  }
  return NpyArray::FromInt32(array.dims, narrow.data());
}

std::vector<MatrixPart> PartsOf(const engine::MatrixInfo& matrix, const engine::ModelInfo& info) {
  std::vector<MatrixPart> parts;
  for (const engine::MatrixInfo::Part& part : matrix.parts) {
    MatrixPart& named = parts.emplace_back();
    named.sparse = part.feature >= 0;
    named.columns = part.columns;
    named.name = named.sparse ? info.features[part.feature].name : info.inputs[part.input].name;
    if (named.sparse) continue;
    const auto width = static_cast<int64_t>(part.columns.size());
    const engine::TensorDims dims =
        info.inputs[part.input].DimsOf(1, width == 0 ? matrix.columns : width);
    named.row_shape.assign(dims.begin() + 1, dims.end());
  }
  return parts;
}

}  // namespace

absl::StatusOr<NpyArray> ConvertInput(const std::string& name, NpyArray array, DType wanted) {
  switch (wanted) {
    case DType::kFloat32:
      if (array.type == NpyType::kFloat32) return array;
      return ToFloat(name, array);
    case DType::kInt32:
      if (array.type == NpyType::kInt32) return array;
      return ToInteger(name, array, wanted);
    case DType::kInt64:
      if (array.type == NpyType::kInt64) return array;
      return ToInteger(name, array, wanted);
  }
  return Internal("input \"", name, "\": unknown type");
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

absl::Status SplitMatrix(const std::string& matrix, const std::string& feature,
                         std::optional<int64_t> padding, engine::NpzArrays& arrays) {
  auto given = arrays.extract(matrix);
  if (given.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const engine::NpyArray array,
                   ConvertInput(matrix, std::move(given.mapped()), engine::DType::kInt64));
  const std::vector<int64_t>& dims = array.dims;
  if (dims.size() != 1 && dims.size() != 2) {
    return InvalidArgument("input \"", matrix, "\": ", dims.size(),
                           " dimensions, want [rows, ids] or [rows]");
  }
  const size_t width = dims.size() == 1 ? 1 : static_cast<size_t>(dims[1]);
  const std::vector<int64_t> elements = array.ToInt64();
  std::vector<int64_t> ids;
  std::vector<int32_t> counts(static_cast<size_t>(dims[0]), 0);
  bool ended = false;  // The ids of the row.
  for (size_t i = 0; i < elements.size(); ++i) {
    int32_t& count = counts[i / width];
    ended = i % width != 0 && (ended || (count > 0 && elements[i] == padding));
    if (elements[i] == padding) continue;
    if (ended) {
      return InvalidArgument("input \"", matrix, "\": row ", i / width, ": the padding id ",
                             *padding, " between ids, want it before or behind them");
    }
    ids.push_back(elements[i]);
    ++count;
  }
  for (const char* part : {".ids", ".values", ".segments"}) {
    if (!arrays.contains(feature + part)) continue;
    return InvalidArgument("inputs \"", matrix, "\" and \"", feature, part,
                           "\": want one of the two");
  }
  arrays[feature + ".ids"] =
      engine::NpyArray::FromInt64({static_cast<int64_t>(ids.size())}, ids.data());
  arrays[feature + ".segments"] = engine::NpyArray::FromInt32({dims[0]}, counts.data());
  return absl::OkStatus();
}

absl::Status SplitMatrix(const std::string& matrix, int64_t columns,
                         const std::vector<MatrixPart>& parts, engine::NpzArrays& arrays) {
  auto given = arrays.extract(matrix);
  if (given.empty()) return absl::OkStatus();
  const DType type = engine::IsFloat(given.mapped().type) ? DType::kFloat32 : DType::kInt64;
  ASSIGN_OR_RETURN(NpyArray array, ConvertInput(matrix, std::move(given.mapped()), type));
  const std::string what = absl::StrCat("input \"", matrix, "\"");
  const int64_t rows = array.dims.empty() ? 0 : array.dims[0];
  if (rows == 0 || static_cast<int64_t>(array.elements()) != rows * columns) {
    return InvalidArgument(what, ": shape [", absl::StrJoin(array.dims, ", "), "], want ", columns,
                           " values in each row");
  }
  const engine::Tensor tensor{type, {rows, columns}, array.bytes.data()};
  for (const MatrixPart& part : parts) {
    const std::string name = absl::StrCat(part.name, part.sparse ? ".ids" : "");
    if (arrays.contains(name)) {
      return InvalidArgument("inputs \"", matrix, "\" and \"", name, "\": want one of the two");
    }
    if (part.sparse) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> ids,
                       engine::ColumnsOf<int64_t>(tensor, part.columns, what));
      const std::vector<int32_t> counts(rows, static_cast<int32_t>(ids.size() / rows));
      arrays[name] = NpyArray::FromInt64({static_cast<int64_t>(ids.size())}, ids.data());
      arrays[part.name + ".segments"] = NpyArray::FromInt32({rows}, counts.data());
    } else {
      ASSIGN_OR_RETURN(const std::vector<float> values,
                       engine::ColumnsOf<float>(tensor, part.columns, what));
      std::vector<int64_t> dims = {rows};
      dims.insert(dims.end(), part.row_shape.begin(), part.row_shape.end());
      arrays[name] = NpyArray::FromFloat32(std::move(dims), values.data());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::NpzArrays> ReadInputs(const std::string& path,
                                             const engine::ModelInfo& info) {
  ASSIGN_OR_RETURN(engine::NpzArrays arrays, engine::ReadNpz(path));
  return ConvertInputs(std::move(arrays), info);
}

absl::StatusOr<engine::NpzArrays> ConvertInputs(engine::NpzArrays arrays,
                                                const engine::ModelInfo& info) {
  std::vector<std::string> known;
  for (const engine::InputInfo& input : info.inputs) known.push_back(input.name);
  for (const engine::FeatureInfo& feature : info.features) {
    if (feature.matrix.empty()) continue;
    RETURN_IF_ERROR(SplitMatrix(feature.matrix, feature.name, feature.padding_id, arrays));
    known.push_back(feature.matrix);
  }
  for (const engine::MatrixInfo& matrix : info.matrices) {
    if (matrix.columns == 0) continue;
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
  return arrays;
}

std::vector<engine::NamedTensor> InputViews(const engine::ModelInfo& info,
                                            engine::NpzArrays& arrays) {
  std::vector<engine::NamedTensor> views;
  for (const engine::InputInfo& input : info.inputs) {
    const auto array = arrays.find(input.name);
    if (array == arrays.end()) continue;
    engine::Tensor tensor;
    tensor.dtype = input.dtype;
    tensor.dims.assign(array->second.dims.begin(), array->second.dims.end());
    if (input.feature < 0) input.FitColumn(tensor.dims);
    tensor.data = array->second.bytes.data();
    views.push_back({.name = input.name, .tensor = tensor});
  }
  return views;
}

}  // namespace ulfd::tools
