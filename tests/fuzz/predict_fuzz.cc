// Requests of the native API: wire bytes -> scanned -> PredictRequest -> decoded -> run -> reply.
// SPDX-License-Identifier: Apache-2.0
#include "proto/predict.pb.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scoring_request.h"

using Request = ulfd::v1::PredictRequest;

ULFD_FUZZ_PROTO(Request, ulfd::fuzz::ProtoForm::kBinary, ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ulfd::fuzz::ScoreRequest<Request, ulfd::v1::PredictResponse>(
      data, size,
      [](const Request& request) { return ulfd::server::ChoiceOf(request.model()).status(); });
  return 0;
}
