// Requests of the KServe API: wire bytes -> scanned -> ModelInferRequest -> decoded -> run -> reply.
// SPDX-License-Identifier: Apache-2.0
#include "engine/tensor/onednn.h"
#include "proto/open_inference.pb.h"
#include "server/scoring/open_inference_codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/proto_mutator.h"
#include "tests/fuzz/receive.h"
#include "tests/fuzz/small_model.h"

ULFD_FUZZ_PROTO(inference::ModelInferRequest, ulfd::fuzz::ProtoForm::kBinary,
                ulfd::fuzz::SmallModelNames())

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  inference::ModelInferRequest request;
  if (!ulfd::fuzz::ReceiveMessage(data, size, request)) return 0;
  const ulfd::engine::Model& model = ulfd::fuzz::SmallModel();
  ulfd::fuzz::CheckMessage(ChoiceOf(request.model_name(), request.model_version()).status());
  DecodedRequest decoded;
  const absl::Status status = DecodeInfer(request, model, RequestLimits(), decoded);
  ulfd::fuzz::CheckMessage(status);
  if (!status.ok()) return 0;
  ulfd::engine::Workspace workspace;
  ulfd::engine::RunResult result;
  const absl::Status run = model.Run(decoded.inputs, {}, workspace, result);
  ulfd::fuzz::CheckMessage(run);
  if (!run.ok()) return 0;
  inference::ModelInferResponse response;
  EncodeInfer(request, decoded, model.info(), result, response);
  if (response.outputs_size() == 0) ulfd::fuzz::Fail("a reply without outputs");
  return 0;
}
