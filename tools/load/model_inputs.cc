// SPDX-License-Identifier: Apache-2.0
#include "tools/load/model_inputs.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/errors.h"
#include "base/status_macros.h"

namespace ulfd::tools {
namespace {

using engine::NumberType;

absl::Status SetType(const std::string& datatype, DenseInput& input) {
  const std::optional<NumberType> type = engine::TypeOfKserve(datatype);
  if (type.has_value() && type != NumberType::kFloat16 && type != NumberType::kBfloat16) {
    input.type = *type;
    return absl::OkStatus();
  }
  return Unimplemented("input \"", input.name, "\" has elements of type ", datatype,
                       ", which cannot be made up; give --inputs=FILE.npz or --replay");
}

// Row count and the rest, from the metadata or else from what the command line states.
absl::Status SetDims(absl::Span<const int64_t> shape, bool level_known, const StatedShapes& stated,
                     DenseInput& input) {
  std::vector<int64_t> dims(shape.begin(), shape.end());
  if (const auto said = stated.find(input.name); said != stated.end()) dims = said->second;
  if (dims.empty()) {
    return FailedPrecondition("the shape of input \"", input.name,
                              "\" is not known: state it with --shape=", input.name,
                              ":-1x10 (-1: a row per ad)");
  }
  if (!level_known) input.of_user = dims[0] >= 0;
  if (input.of_user) input.user_rows = std::max<int64_t>(1, dims[0]);
  input.dims.assign(dims.begin() + 1, dims.end());
  int64_t values = input.of_user ? input.user_rows : 1;
  for (const int64_t dim : input.dims) {
    if (dim < 0) {
      return FailedPrecondition("the shape of input \"", input.name,
                                "\" is not known but for its rank: state it with --shape=",
                                input.name, ":", input.of_user ? "1" : "-1", "x10");
    }
    values = dim > kMostValues / std::max<int64_t>(values, 1) ? kMostValues + 1 : values * dim;
  }
  if (values > kMostValues) {
    return FailedPrecondition("input \"", input.name, "\" of shape [", absl::StrJoin(dims, ", "),
                              "]: want at most ", kMostValues, " values");
  }
  return absl::OkStatus();
}

absl::Status CheckStated(const StatedShapes& stated, const std::set<std::string>& known) {
  for (const auto& [name, shape] : stated) {
    if (known.count(name) > 0) continue;
    std::string names;
    for (const std::string& k : known) absl::StrAppend(&names, names.empty() ? "" : ", ", k);
    return InvalidArgument("--shape: the model has no dense input \"", name,
                           names.empty() ? "\"; it has none" : "\"; it has ", names);
  }
  return absl::OkStatus();
}

const char* NameOf(ulfd::v1::DataType type) {
  switch (type) {
    case ulfd::v1::DATA_TYPE_FLOAT32:
      return "FP32";
    case ulfd::v1::DATA_TYPE_INT32:
      return "INT32";
    case ulfd::v1::DATA_TYPE_INT64:
      return "INT64";
    default:
      return "unspecified";
  }
}

constexpr const char* kParts[] = {".ids", ".values", ".segments"};

}  // namespace

absl::StatusOr<ModelInputs> InputsOf(const ulfd::v1::GetModelMetadataResponse& metadata,
                                     const StatedShapes& stated) {
  ModelInputs inputs;
  std::set<std::string> parts, known;
  for (const ulfd::v1::SparseFeatureMetadata& feature : metadata.sparse_features()) {
    inputs.sparse.push_back({.name = feature.name(),
                             .of_user = feature.level() == ulfd::v1::TENSOR_LEVEL_USER,
                             .max_ids_per_row = feature.max_ids_per_row()});
    for (const char* part : kParts) parts.insert(feature.name() + part);
  }
  for (const ulfd::v1::TensorMetadata& tensor : metadata.inputs()) {
    if (parts.count(tensor.name()) > 0) continue;
    known.insert(tensor.name());
    DenseInput input{.name = tensor.name()};
    RETURN_IF_ERROR(SetType(NameOf(tensor.data_type()), input));
    const bool level_known = tensor.level() == ulfd::v1::TENSOR_LEVEL_USER ||
                             tensor.level() == ulfd::v1::TENSOR_LEVEL_AD;
    input.of_user = tensor.level() == ulfd::v1::TENSOR_LEVEL_USER;
    RETURN_IF_ERROR(SetDims(tensor.shape(), level_known, stated, input));
    inputs.dense.push_back(std::move(input));
  }
  RETURN_IF_ERROR(CheckStated(stated, known));
  return inputs;
}

absl::StatusOr<ModelInputs> InputsOf(const inference::ModelMetadataResponse& metadata,
                                     const StatedShapes& stated) {
  std::map<std::string, const inference::ModelMetadataResponse::TensorMetadata*> tensors;
  for (const auto& tensor : metadata.inputs()) tensors[tensor.name()] = &tensor;
  ModelInputs inputs;
  std::set<std::string> parts, known;
  for (const auto& [name, tensor] : tensors) {
    if (!absl::EndsWith(name, ".ids")) continue;
    const std::string feature = name.substr(0, name.size() - 4);
    const auto segments = tensors.find(feature + ".segments");
    if (segments == tensors.end()) continue;
    const auto& rows = segments->second->shape();
    inputs.sparse.push_back({.name = feature, .of_user = rows.size() == 1 && rows[0] == 1});
    for (const char* part : kParts) parts.insert(feature + part);
  }
  for (const auto& tensor : metadata.inputs()) {
    if (parts.count(tensor.name()) > 0) continue;
    known.insert(tensor.name());
    DenseInput input{.name = tensor.name()};
    RETURN_IF_ERROR(SetType(tensor.datatype(), input));
    RETURN_IF_ERROR(SetDims(tensor.shape(), false, stated, input));
    inputs.dense.push_back(std::move(input));
  }
  RETURN_IF_ERROR(CheckStated(stated, known));
  return inputs;
}

}  // namespace ulfd::tools
