// Calls a running daemon through its native and its KServe API.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLIENT_CLIENTS_H_
#define ULFD_TOOLS_CLIENT_CLIENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/weights/npz.h"
#include "proto/open_inference.pb.h"
#include "proto/predict.pb.h"
#include "tools/client/connection.h"
#include "tools/client/reply.h"

namespace ulfd::tools {

// Turns arrays under the graph's input names into a request: f.ids, f.values, f.segments become the
// sparse feature f, everything else a dense one; the model's metadata says which belong to the
// user.  Only the features are filled.
absl::StatusOr<ulfd::v1::PredictRequest> RequestFromArrays(
    const engine::NpzArrays& arrays, const ulfd::v1::GetModelMetadataResponse& metadata);
// The number of ads in such arrays; 1 if no ad feature tells.
int64_t AdsOfRequest(const engine::NpzArrays& arrays,
                     const ulfd::v1::GetModelMetadataResponse& metadata);

// A model as flags name it; version 0 and an empty label: the server chooses.
ulfd::v1::ModelSpec SpecOf(const std::string& model, int64_t version, const std::string& label);

// Calls PredictionService.GetModelMetadata and .Predict.
absl::StatusOr<ulfd::v1::GetModelMetadataResponse> CallGetModelMetadata(
    const Connection& server, const ulfd::v1::ModelSpec& model, absl::Duration timeout);
absl::StatusOr<Reply> CallPredict(const Connection& server, const ulfd::v1::PredictRequest& request,
                                  absl::Duration timeout);

// What a KServe call can choose.
struct KserveCall {
  std::string model;
  int64_t version = 0;               // 0: the server chooses.
  std::vector<std::string> outputs;  // Empty: all.
  std::string request_id;
};

// Calls GRPCInferenceService.ModelMetadata; version 0: the server chooses.
absl::StatusOr<inference::ModelMetadataResponse> CallModelMetadata(const Connection& server,
                                                                   const std::string& model,
                                                                   int64_t version,
                                                                   absl::Duration timeout);
// Turns arrays under the names of the model's inputs into a request with raw contents.  Only the
// inputs are filled.
absl::StatusOr<inference::ModelInferRequest> InferRequestFromArrays(
    const engine::NpzArrays& arrays, const inference::ModelMetadataResponse& metadata);

// Calls GRPCInferenceService.ModelMetadata, for the types of the inputs, and .ModelInfer.
absl::StatusOr<Reply> CallModelInfer(const Connection& server, const KserveCall& call,
                                     const engine::NpzArrays& arrays, absl::Duration timeout);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLIENT_CLIENTS_H_
