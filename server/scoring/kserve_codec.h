// KServe v2 requests -> the engine's tensors, and back.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_KSERVE_CODEC_H_
#define ULFD_SERVER_SCORING_KSERVE_CODEC_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "server/models/model_types.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// Which model is meant; INVALID_ARGUMENT for an empty name or a version that is not a positive
// decimal number.
absl::StatusOr<ModelChoice> ChoiceOf(const std::string& name, const std::string& version);

// INVALID_ARGUMENT names the input, what was found and what was wanted.  `request` and `model` must
// outlive `decoded`.  Values of the model's types are not copied: the tensors point into the
// request.
absl::Status DecodeRequest(const inference::ModelInferRequest& request, const engine::Model& model,
                           const RequestLimits& limits, DecodedRequest& decoded);

// Raw contents if the request used them, typed ones otherwise.
absl::Status EncodeResponse(const inference::ModelInferRequest& request,
                            const DecodedRequest& decoded, const engine::ModelInfo& info,
                            const engine::RunResult& result,
                            inference::ModelInferResponse& response);

// Inputs, outputs, platform and properties; not `versions`.
void DescribeModel(const engine::ModelInfo& info, inference::ModelMetadataResponse& response);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_KSERVE_CODEC_H_
