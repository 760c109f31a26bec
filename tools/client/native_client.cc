// Calls a running daemon through its native API.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "proto/predict.grpc.pb.h"
#include "tools/client/clients.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

using engine::DType;
using engine::NpyArray;
using ulfd::v1::PredictionService;

absl::StatusOr<DType> DTypeOf(const ulfd::v1::TensorMetadata& input) {
  switch (input.data_type()) {
    case ulfd::v1::DATA_TYPE_FLOAT32:
      return DType::kFloat32;
    case ulfd::v1::DATA_TYPE_INT32:
      return DType::kInt32;
    case ulfd::v1::DATA_TYPE_INT64:
      return DType::kInt64;
    default:
      return Internal("input \"", input.name(), "\": the server says type ",
                      NameOr(ulfd::v1::DataType_Name(input.data_type()), input.data_type()));
  }
}

template <typename T>
void Append(const NpyArray& array, google::protobuf::RepeatedField<T>* field) {
  const int64_t count = array.elements();
  field->Resize(static_cast<int>(count), T());
  if (count > 0) std::memcpy(field->mutable_data(), array.bytes.data(), array.bytes.size());
}

void FillDense(const NpyArray& array, DType type, ulfd::v1::DenseTensor& dense) {
  for (const int64_t dim : array.dims) dense.add_shape(dim);
  if (type == DType::kFloat32) Append(array, dense.mutable_floats());
  if (type == DType::kInt32) Append(array, dense.mutable_int32s());
  if (type == DType::kInt64) Append(array, dense.mutable_int64s());
}

MatrixPart PartOf(const ulfd::v1::SparseFeatureMetadata& feature) {
  MatrixPart part{.name = feature.name(), .sparse = true};
  if (feature.has_padding_id()) part.padding = feature.padding_id();
  return part;
}

std::vector<MatrixPart> PartsOf(const ulfd::v1::MatrixMetadata& matrix,
                                const ulfd::v1::GetModelMetadataResponse& metadata) {
  std::vector<MatrixPart> parts;
  for (const ulfd::v1::MatrixMetadata::Part& part : matrix.parts()) {
    MatrixPart& named = parts.emplace_back();
    named.name = part.name();
    for (const ulfd::v1::SparseFeatureMetadata& feature : metadata.sparse_features()) {
      if (feature.name() == part.name()) named = PartOf(feature);
    }
    named.columns.assign(part.columns().begin(), part.columns().end());
    for (const ulfd::v1::TensorMetadata& input : metadata.inputs()) {
      if (input.name() != part.name()) continue;
      named.row_shape.assign(input.shape().begin() + std::min(1, input.shape_size()),
                             input.shape().end());
      named.dtype = DTypeOf(input).value_or(DType::kFloat32);
    }
  }
  return parts;
}

// The arrays, each in the type of its input.
absl::StatusOr<engine::NpzArrays> Converted(engine::NpzArrays arrays,
                                            const ulfd::v1::GetModelMetadataResponse& metadata) {
  std::vector<std::string> known;
  for (const ulfd::v1::TensorMetadata& input : metadata.inputs()) known.push_back(input.name());
  for (const ulfd::v1::SparseFeatureMetadata& feature : metadata.sparse_features()) {
    if (feature.matrix().empty()) continue;
    RETURN_IF_ERROR(SplitMatrix(feature.matrix(), 0, {PartOf(feature)}, arrays));
    known.push_back(feature.matrix());
  }
  for (const ulfd::v1::MatrixMetadata& matrix : metadata.matrices()) {
    RETURN_IF_ERROR(
        SplitMatrix(matrix.name(), matrix.columns(), PartsOf(matrix, metadata), arrays));
    known.push_back(matrix.name());
  }
  RETURN_IF_ERROR(CheckInputNames(arrays, known));
  engine::NpzArrays converted;
  for (const ulfd::v1::TensorMetadata& input : metadata.inputs()) {
    const auto array = arrays.find(input.name());
    if (array == arrays.end()) continue;
    ASSIGN_OR_RETURN(const DType type, DTypeOf(input));
    ASSIGN_OR_RETURN(converted[input.name()], ConvertInput(input.name(), array->second, type));
  }
  return converted;
}

// Rows of the request's ad features, -1 if none tells.
int64_t CountAds(const engine::NpzArrays& arrays,
                 const ulfd::v1::GetModelMetadataResponse& metadata) {
  for (const ulfd::v1::SparseFeatureMetadata& feature : metadata.sparse_features()) {
    if (feature.level() != ulfd::v1::TENSOR_LEVEL_AD) continue;
    for (const std::string& part :
         {feature.name() + ".segments", feature.name() + ".ids", feature.matrix()}) {
      const auto array = arrays.find(part);
      if (array != arrays.end() && !array->second.dims.empty()) return array->second.dims[0];
    }
  }
  for (const ulfd::v1::TensorMetadata& input : metadata.inputs()) {
    const auto array = arrays.find(input.name());
    if (input.level() != ulfd::v1::TENSOR_LEVEL_AD || array == arrays.end()) continue;
    if (!array->second.dims.empty()) return array->second.dims[0];
  }
  return -1;
}

}  // namespace

int64_t AdsOfRequest(const engine::NpzArrays& arrays,
                     const ulfd::v1::GetModelMetadataResponse& metadata) {
  return std::max<int64_t>(1, CountAds(arrays, metadata));
}

absl::StatusOr<ulfd::v1::PredictRequest> RequestFromArrays(
    const engine::NpzArrays& arrays, const ulfd::v1::GetModelMetadataResponse& metadata) {
  ASSIGN_OR_RETURN(auto converted, Converted(arrays, metadata));
  const int64_t ads = CountAds(converted, metadata);
  ulfd::v1::PredictRequest request;
  for (const ulfd::v1::SparseFeatureMetadata& feature : metadata.sparse_features()) {
    auto ids = converted.extract(feature.name() + ".ids");
    auto values = converted.extract(feature.name() + ".values");
    auto segments = converted.extract(feature.name() + ".segments");
    if (ids.empty() && values.empty() && segments.empty()) continue;
    ulfd::v1::Feature* out = feature.level() == ulfd::v1::TENSOR_LEVEL_USER
                                 ? request.add_user_features()
                                 : request.add_ad_features();
    out->set_name(feature.name());
    ulfd::v1::SparseFeature* sparse = out->mutable_sparse();
    if (ids) Append(ids.mapped(), sparse->mutable_ids());
    if (values) Append(values.mapped(), sparse->mutable_values());
    if (segments) Append(segments.mapped(), sparse->mutable_counts());
  }
  for (const ulfd::v1::TensorMetadata& input : metadata.inputs()) {
    const auto array = converted.find(input.name());
    if (array == converted.end()) continue;
    const int64_t rows = array->second.dims.empty() ? 1 : array->second.dims[0];
    const bool user = input.level() == ulfd::v1::TENSOR_LEVEL_USER ||
                      (input.level() != ulfd::v1::TENSOR_LEVEL_AD && rows != ads);
    ulfd::v1::Feature* out = user ? request.add_user_features() : request.add_ad_features();
    out->set_name(input.name());
    ASSIGN_OR_RETURN(const DType type, DTypeOf(input));
    FillDense(array->second, type, *out->mutable_dense());
  }
  return request;
}

ulfd::v1::ModelSpec SpecOf(const std::string& model, int64_t version, const std::string& label) {
  ulfd::v1::ModelSpec spec;
  spec.set_name(model);
  if (version != 0) spec.set_version(version);
  if (!label.empty()) spec.set_label(label);
  return spec;
}

absl::StatusOr<ulfd::v1::GetModelMetadataResponse> CallGetModelMetadata(
    const Connection& server, const ulfd::v1::ModelSpec& model, absl::Duration timeout) {
  ulfd::v1::GetModelMetadataRequest request;
  *request.mutable_model() = model;
  return Call<PredictionService>(server, &PredictionService::Stub::GetModelMetadata,
                                 "GetModelMetadata", request, timeout);
}

absl::StatusOr<Reply> CallPredict(const Connection& server, const ulfd::v1::PredictRequest& request,
                                  absl::Duration timeout) {
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const ulfd::v1::PredictResponse response,
                   Call<PredictionService>(server, &PredictionService::Stub::Predict, "Predict",
                                           request, timeout));
  Reply reply;
  reply.call_ms = absl::ToDoubleMilliseconds(absl::Now() - begin);
  reply.title =
      absl::StrCat("model ", response.model().name(), ", version ", response.model().version());
  for (const ulfd::v1::OutputTensor& output : response.outputs()) {
    reply.outputs.push_back({.name = output.name(),
                             .shape = {output.shape().begin(), output.shape().end()},
                             .values = {output.values().begin(), output.values().end()}});
  }
  reply.indices.assign(response.indices().begin(), response.indices().end());
  reply.missing_ids = response.missing_ids();
  reply.late_ids = response.late_ids();
  if (response.has_timings()) {
    const ulfd::v1::Timings& t = response.timings();
    reply.timings = {{"queue", t.queue_us()}, {"decode", t.decode_us()}, {"embed", t.embed_us()},
                     {"user", t.user_us()},   {"dense", t.dense_us()},   {"encode", t.encode_us()},
                     {"total", t.total_us()}};
  }
  return reply;
}

}  // namespace ulfd::tools
