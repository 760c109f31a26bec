// Requests of the native API -> the engine's tensors.  Checks everything that a request can get
// wrong; knows nothing of gRPC calls.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_REQUEST_DECODER_H_
#define ULFD_SERVER_SCORING_REQUEST_DECODER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "proto/predict.pb.h"
#include "server/models/model_types.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// Which model the request asks for; INVALID_ARGUMENT for an empty name or a version below 1.
absl::StatusOr<ModelChoice> ChoiceOf(const ulfd::v1::ModelSpec& spec);

// How many ads the request seems to cost, at least 1: cheap, for the queue; the decoder checks.
// Ads that the caller states, at most max_ads of them, or as many as the values that it sends would
// make.
int64_t CountRows(const ulfd::v1::PredictRequest& request, const engine::Model& model,
                  const RequestLimits& limits);

// INVALID_ARGUMENT names the feature, what was found and what was wanted.  `request` and `model`
// must outlive `decoded`.
absl::Status DecodeRequest(const ulfd::v1::PredictRequest& request, const engine::Model& model,
                           const RequestLimits& limits, DecodedRequest& decoded);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_REQUEST_DECODER_H_
