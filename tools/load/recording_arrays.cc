// SPDX-License-Identifier: Apache-2.0
#include "tools/load/recording_arrays.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "engine/tensor/tensor.h"
#include "engine/weights/npy.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"

namespace ulfd::tools {
namespace {

using engine::NpyArray;
using engine::NpzArrays;
using engine::NumberType;

template <typename Field>
std::string Packed(const Field& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     static_cast<size_t>(values.size()) * sizeof(*values.data()));
}

// INVALID_ARGUMENT unless the shape has the values that are there: whoever wrote the file chose
// both.
absl::Status Add(const std::string& name, NumberType type, std::vector<int64_t> dims,
                 std::string bytes, NpzArrays& arrays) {
  ASSIGN_OR_RETURN(const int64_t want, Annotate(engine::ArrayBytes(dims, type), Quote(name)));
  if (static_cast<int64_t>(bytes.size()) != want) {
    return InvalidArgument(Quote(name), ": ", bytes.size(), " bytes of values, want ", want,
                           " for ", engine::Name(type), " ", engine::ToString(dims));
  }
  arrays[name] = {type, std::move(dims), std::move(bytes)};
  return absl::OkStatus();
}

void AddSparse(const std::string& name, const ulfd::v1::SparseFeature& sparse, bool of_user,
               NpzArrays& arrays) {
  const int64_t ids = sparse.ids_size();
  std::vector<int32_t> counts(sparse.counts().begin(), sparse.counts().end());
  if (counts.empty() && of_user) counts = {static_cast<int32_t>(ids)};
  if (counts.empty()) counts.assign(static_cast<size_t>(ids), 1);
  std::vector<float> values(sparse.values().begin(), sparse.values().end());
  if (values.empty()) values.assign(static_cast<size_t>(ids), 1.0f);
  arrays[absl::StrCat(name, ".ids")] = NpyArray::FromInt64({ids}, sparse.ids().data());
  arrays[absl::StrCat(name, ".values")] =
      NpyArray::FromFloat32({static_cast<int64_t>(values.size())}, values.data());
  arrays[absl::StrCat(name, ".segments")] =
      NpyArray::FromInt32({static_cast<int64_t>(counts.size())}, counts.data());
}

absl::Status AddDense(const std::string& name, const ulfd::v1::DenseTensor& dense, int64_t rows,
                      NpzArrays& arrays) {
  const int64_t count = int64_t{dense.floats_size()} + dense.int32s_size() + dense.int64s_size();
  std::vector<int64_t> dims(dense.shape().begin(), dense.shape().end());
  if (dims.empty()) dims = {rows, count / std::max<int64_t>(1, rows)};
  if (dense.int32s_size() > 0) {
    return Add(name, NumberType::kInt32, std::move(dims), Packed(dense.int32s()), arrays);
  }
  if (dense.int64s_size() > 0) {
    return Add(name, NumberType::kInt64, std::move(dims), Packed(dense.int64s()), arrays);
  }
  return Add(name, NumberType::kFloat32, std::move(dims), Packed(dense.floats()), arrays);
}

absl::StatusOr<NpzArrays> NativeInputs(const recording::v1::Recording& record) {
  ulfd::v1::PredictRequest request;
  if (!request.ParseFromString(record.request())) {
    return DataLoss("the record holds no PredictRequest");
  }
  NpzArrays arrays;
  const auto add = [&](const ulfd::v1::Feature& feature, bool of_user) {
    if (feature.has_sparse()) AddSparse(feature.name(), feature.sparse(), of_user, arrays);
    if (!feature.has_dense()) return absl::OkStatus();
    return AddDense(feature.name(), feature.dense(), of_user ? 1 : record.ads(), arrays);
  };
  for (const ulfd::v1::Feature& feature : request.user_features()) {
    RETURN_IF_ERROR(add(feature, true));
  }
  for (const ulfd::v1::Feature& feature : request.ad_features()) {
    RETURN_IF_ERROR(add(feature, false));
  }
  return arrays;
}

absl::StatusOr<NpzArrays> KserveInputs(const recording::v1::Recording& record) {
  inference::ModelInferRequest request;
  if (!request.ParseFromString(record.request())) {
    return DataLoss("the record holds no ModelInferRequest");
  }
  NpzArrays arrays;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    const auto& contents = input.contents();
    const std::optional<NumberType> raw = engine::TypeOfKserve(input.datatype());
    if (!raw.has_value()) {
      return Unimplemented("input \"", input.name(), "\" has datatype \"", input.datatype(),
                           "\", want one of numbers");
    }
    NumberType type = *raw;
    std::string bytes;
    if (i < request.raw_input_contents_size()) bytes = request.raw_input_contents(i);
    const auto take = [&](NumberType its, const auto& values) {
      if (values.empty()) return;
      type = its;
      bytes = Packed(values);
    };
    take(NumberType::kBool, contents.bool_contents());
    take(NumberType::kInt32, contents.int_contents());
    take(NumberType::kInt64, contents.int64_contents());
    take(NumberType::kUint32, contents.uint_contents());
    take(NumberType::kUint64, contents.uint64_contents());
    take(NumberType::kFloat32, contents.fp32_contents());
    take(NumberType::kFloat64, contents.fp64_contents());
    RETURN_IF_ERROR(Add(input.name(), type, {input.shape().begin(), input.shape().end()},
                        std::move(bytes), arrays));
  }
  return arrays;
}

}  // namespace

absl::StatusOr<NpzArrays> InputsOfRecording(const recording::v1::Recording& record) {
  return record.api() == recording::v1::API_NATIVE ? NativeInputs(record) : KserveInputs(record);
}

absl::StatusOr<NpzArrays> OutputsOfRecording(const recording::v1::Recording& record) {
  NpzArrays arrays;
  for (const recording::v1::RecordedOutput& output : record.outputs()) {
    RETURN_IF_ERROR(Add(output.name(), NumberType::kFloat32,
                        {output.shape().begin(), output.shape().end()}, Packed(output.values()),
                        arrays));
  }
  if (record.indices_size() > 0) {
    arrays["top_k.indices"] = NpyArray::FromInt32({record.indices_size()}, record.indices().data());
  }
  return arrays;
}

}  // namespace ulfd::tools
