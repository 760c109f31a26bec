// Requests of the KServe API: wire
// bytes -> scanned -> ModelInferRequest -> decoded -> run -> reply.
// SPDX-License-Identifier: Apache-2.0
#include "proto/open_inference.pb.h"
#include "server/scoring/kserve_codec.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/scoring_request.h"

using Request = inference::ModelInferRequest;

ULFD_FUZZ_PROTO(Request, ulfd::fuzz::ProtoForm::kBinary, ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ulfd::fuzz::ScoreRequest<Request, inference::ModelInferResponse>(
      data, size, [](const Request& request) {
        return ulfd::server::ChoiceOf(request.model_name(), request.model_version()).status();
      });
  return 0;
}
