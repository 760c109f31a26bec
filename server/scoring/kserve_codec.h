// KServe v2 requests -> the engine's tensors, and back.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCORING_KSERVE_CODEC_H_
#define ULFD_SERVER_SCORING_KSERVE_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/model.h"
#include "engine/tensor/numbers.h"
#include "proto/open_inference.pb.h"
#include "server/models/model_types.h"
#include "server/scoring/decoded_request.h"

namespace ulfd::server {

// Which model is meant; INVALID_ARGUMENT for an empty name or a version that is not a positive
// decimal number.
absl::StatusOr<ModelChoice> ChoiceOf(const std::string& name, const std::string& version);

// How many ads the request seems to cost: see request_decoder.h.
int64_t CountRows(const inference::ModelInferRequest& request, const engine::Model& model,
                  const RequestLimits& limits);
// The same of a request whose values are still to come, as many as its shapes say.
int64_t CountRowsByShapes(const inference::ModelInferRequest& request, const engine::Model& model,
                          const RequestLimits& limits);

// What DecodeRequest would say of the names of the inputs, and of more rows than it takes; before
// there are values.
absl::Status CheckNamesAndRows(const inference::ModelInferRequest& request,
                               const engine::Model& model, const RequestLimits& limits);

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

// The one field that is filled, as a row of numbers.  Borrows.
engine::NumberArray NumbersOf(const inference::InferTensorContents& contents);
// The values of an input, raw or typed, as a row of numbers, whatever its shape says.
engine::NumberArray NumbersOf(const inference::ModelInferRequest& request, int input);

// "FP32", "INT32", "INT64".
absl::string_view DatatypeName(engine::DType dtype);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCORING_KSERVE_CODEC_H_
