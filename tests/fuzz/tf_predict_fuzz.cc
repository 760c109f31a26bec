// Requests of TensorFlow Serving's API: wire bytes -> scanned -> PredictRequest -> the request of
// KServe -> decoded -> run -> reply.
// SPDX-License-Identifier: Apache-2.0
#include "proto/tf_serving.pb.h"
#include "server/scoring/kserve_codec.h"
#include "server/scoring/tf_serving_codec.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/receive.h"
#include "tests/fuzz/scoring_request.h"

using Request = tensorflow::serving::PredictRequest;

ULFD_FUZZ_PROTO(Request, ulfd::fuzz::ProtoForm::kBinary, ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ulfd::fuzz::Fail;
  Request request;
  if (!ulfd::fuzz::ReceiveMessage(data, size, request)) return 0;
  ulfd::fuzz::CheckMessage(ulfd::server::ChoiceOf(request.model_spec()).status());
  inference::ModelInferRequest infer;
  const ulfd::server::RequestLimits limits{.max_message_bytes = 1 << 20};
  absl::Status made = ulfd::server::DescribeInputs(request, infer);
  if (made.ok()) {
    made = ulfd::server::FillInputs(request, ulfd::fuzz::SmallModel(), limits, infer);
  }
  ulfd::fuzz::CheckMessage(made);
  // Bytes of the narrowest elements become those of the widest; what is left out is bounded.
  if (infer.ByteSizeLong() > 16 * size + (size_t{40} << 10)) Fail("a request that grows");
  if (!made.ok()) return 0;
  inference::ModelInferResponse response;
  if (!ulfd::fuzz::Score(infer, response)) return 0;
  tensorflow::serving::PredictResponse reply;
  ulfd::server::MakePredictResponse(response, reply);
  if (reply.outputs_size() != response.outputs_size()) Fail("outputs got lost");
  return 0;
}
