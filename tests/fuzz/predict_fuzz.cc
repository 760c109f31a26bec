// Requests of the native API: wire bytes -> scanned -> PredictRequest -> decoded -> run -> reply.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"
#include "proto/predict.pb.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/response_encoder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/receive.h"
#include "tests/fuzz/small_model.h"

ULFD_FUZZ_PROTO(ulfd::v1::PredictRequest, ulfd::fuzz::ProtoForm::kBinary,
                ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  ulfd::v1::PredictRequest request;
  if (!ulfd::fuzz::ReceiveMessage(data, size, request)) return 0;
  const ulfd::engine::Model& model = ulfd::fuzz::SmallModel();
  ulfd::fuzz::CheckMessage(ChoiceOf(request.model()).status());
  DecodedRequest decoded;
  const absl::Status status = DecodePredict(request, model, RequestLimits(), decoded);
  ulfd::fuzz::CheckMessage(status);
  if (!status.ok()) return 0;
  ulfd::engine::Workspace workspace;
  ulfd::engine::RunResult result;
  const absl::Status run = model.Run(decoded.inputs, {}, workspace, result);
  ulfd::fuzz::CheckMessage(run);
  if (!run.ok()) return 0;
  ulfd::v1::PredictResponse response;
  const absl::Status encoded = EncodePredict(request, decoded, model.info(), result, response);
  ulfd::fuzz::CheckMessage(encoded);
  if (encoded.ok()) CountNonFinite(result, decoded);
  if (encoded.ok() && response.SerializeAsString().empty()) ulfd::fuzz::Fail("an empty reply");
  return 0;
}
