// TensorFlow Serving's requests -> those of KServe, of which everything else is made, and back.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_TF_SERVING_CODEC_H_
#define ULFD_SERVER_SCORING_TF_SERVING_CODEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime/model.h"
#include "proto/open_inference.pb.h"
#include "proto/tf_serving.pb.h"
#include "server/models/model_types.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// INVALID_ARGUMENT for an empty name, a version below 1, or a signature that no model has.
absl::StatusOr<ModelChoice> ChoiceOf(const tensorflow::serving::ModelSpec& spec);

// Makes `to` the request without its values: what admission reads.  INVALID_ARGUMENT: a shape that
// is none; RESOURCE_EXHAUSTED: too many values are left out.
absl::Status DescribeInputs(const tensorflow::serving::PredictRequest& from,
                            inference::ModelInferRequest& to);

// Adds the values, raw, which it takes out of `from` where they can stay as they are.  They become
// what `model` wants, as far as that changes none of them but for the rounding of floats.
// INVALID_ARGUMENT names the input, what was found and what was wanted; what is wrong with names
// and shapes otherwise, the decoder of KServe's requests finds.  RESOURCE_EXHAUSTED: too many rows,
// or values of other types than the model's become more than `limits.max_message_bytes`.
absl::Status FillInputs(tensorflow::serving::PredictRequest& from, const engine::Model& model,
                        const RequestLimits& limits, inference::ModelInferRequest& to);

// One input as a request of KServe's that has no other, where the model is not known yet: integers
// of 64 bits, numbers of 32.  Nothing if there is none, or if it would be refused.
std::optional<inference::ModelInferRequest> InputAlone(
    const tensorflow::serving::PredictRequest& from, const std::string& name);

// `from` is the answer to such a request.
void MakePredictResponse(const inference::ModelInferResponse& from,
                         tensorflow::serving::PredictResponse& to);

// The one signature of a model.
void DescribeModel(const inference::ModelMetadataResponse& model,
                   tensorflow::serving::SignatureDefMap& out);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_TF_SERVING_CODEC_H_
