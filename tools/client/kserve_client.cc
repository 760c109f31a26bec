// Calls a running daemon through the KServe v2 API.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "engine/tensor/numbers.h"
#include "proto/open_inference.grpc.pb.h"
#include "tools/client/clients.h"
#include "tools/model/npz_inputs.h"

namespace ulfd::tools {
namespace {

using engine::DType;
using inference::GRPCInferenceService;

absl::StatusOr<DType> DTypeOf(const std::string& name, const std::string& datatype) {
  for (const DType type : {DType::kFloat32, DType::kInt32, DType::kInt64}) {
    if (datatype == engine::KserveName(engine::TypeOf(type))) return type;
  }
  return Internal("input \"", name, "\": the server says type \"", datatype, "\"");
}

// Every array as raw bytes; KServe wants either all inputs raw or none.  What the metadata does not
// name (a feature or several inputs as one matrix) is sent as it is.
absl::Status FillInputs(engine::NpzArrays arrays, const inference::ModelMetadataResponse& metadata,
                        inference::ModelInferRequest& request) {
  for (const auto& input : metadata.inputs()) {
    const auto array = arrays.find(input.name());
    if (array == arrays.end()) continue;
    ASSIGN_OR_RETURN(const DType type, DTypeOf(input.name(), input.datatype()));
    ASSIGN_OR_RETURN(array->second, ConvertInput(input.name(), std::move(array->second), type));
  }
  for (auto& [name, array] : arrays) {
    auto* tensor = request.add_inputs();
    tensor->set_name(name);
    tensor->set_datatype(std::string(engine::KserveName(array.type)));
    for (const int64_t dim : array.dims) tensor->add_shape(dim);
    request.add_raw_input_contents(std::move(array.bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> Values(const inference::ModelInferResponse& response, int i) {
  const auto& output = response.outputs(i);
  if (output.datatype() != "FP32") {
    return Internal("output \"", output.name(), "\" has type ", output.datatype());
  }
  if (response.raw_output_contents_size() == 0) {
    const auto& values = output.contents().fp32_contents();
    return std::vector<float>(values.begin(), values.end());
  }
  if (i >= response.raw_output_contents_size() ||
      response.raw_output_contents(i).size() % sizeof(float) != 0) {
    return Internal("output \"", output.name(), "\": bad raw contents");
  }
  const std::string& raw = response.raw_output_contents(i);
  std::vector<float> values(raw.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

}  // namespace

absl::StatusOr<inference::ModelMetadataResponse> CallModelMetadata(const Connection& server,
                                                                   const std::string& model,
                                                                   int64_t version,
                                                                   absl::Duration timeout) {
  inference::ModelMetadataRequest wanted;
  wanted.set_name(model);
  if (version != 0) wanted.set_version(absl::StrCat(version));
  return Call<GRPCInferenceService>(server, &GRPCInferenceService::Stub::ModelMetadata,
                                    "ModelMetadata", wanted, timeout);
}

absl::StatusOr<inference::ModelInferRequest> InferRequestFromArrays(
    const engine::NpzArrays& arrays, const inference::ModelMetadataResponse& metadata) {
  inference::ModelInferRequest request;
  RETURN_IF_ERROR(FillInputs(arrays, metadata, request));
  return request;
}

absl::StatusOr<Reply> CallModelInfer(const Connection& server, const KserveCall& call,
                                     const engine::NpzArrays& arrays, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const auto metadata,
                   CallModelMetadata(server, call.model, call.version, timeout));
  ASSIGN_OR_RETURN(inference::ModelInferRequest request, InferRequestFromArrays(arrays, metadata));
  request.set_model_name(call.model);
  if (call.version != 0) request.set_model_version(absl::StrCat(call.version));
  request.set_id(call.request_id);
  for (const std::string& output : call.outputs) request.add_outputs()->set_name(output);
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(const inference::ModelInferResponse response,
                   Call<GRPCInferenceService>(server, &GRPCInferenceService::Stub::ModelInfer,
                                              "ModelInfer", request, timeout));
  Reply reply;
  reply.call_ms = absl::ToDoubleMilliseconds(absl::Now() - begin);
  reply.title =
      absl::StrCat("model ", response.model_name(), ", version ", response.model_version());
  for (int i = 0; i < response.outputs_size(); ++i) {
    const auto& output = response.outputs(i);
    ASSIGN_OR_RETURN(std::vector<float> values, Values(response, i));
    reply.outputs.push_back({.name = output.name(),
                             .shape = {output.shape().begin(), output.shape().end()},
                             .values = std::move(values)});
  }
  return reply;
}

}  // namespace ulfd::tools
