// A scoring request of either API as the daemon takes it: received, decoded, run, encoded.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TESTS_FUZZ_SCORING_REQUEST_H_
#define ULFD_TESTS_FUZZ_SCORING_REQUEST_H_

#include "engine/runtime/model.h"
#include "server/scoring/request_decoder.h"
#include "server/scoring/response_encoder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/receive.h"
#include "tests/fuzz/small_model.h"

namespace ulfd::fuzz {

// Whether there are scores; says why not otherwise.
template <typename Request, typename Response>
bool Score(const Request& request, Response& response) {
  const engine::Model& model = SmallModel();
  const server::RequestLimits limits;
  server::DecodedRequest decoded;
  const absl::Status status = DecodeRequest(request, model, limits, decoded);
  CheckMessage(status);
  if (!status.ok()) return false;
  engine::Workspace workspace;
  engine::RunResult result;
  engine::RunOptions options;
  options.max_memory_bytes = limits.max_memory_bytes;
  const absl::Status run = model.Run(decoded.inputs, options, workspace, result);
  CheckMessage(run);
  if (!run.ok()) return false;
  const absl::Status encoded = EncodeResponse(request, decoded, model.info(), result, response);
  CheckMessage(encoded);
  if (!encoded.ok()) return false;
  server::CountNonFinite(result, decoded);
  if (response.outputs_size() == 0) Fail("a reply without outputs");
  return true;
}

// `choose`: request -> status of the choice of the model.
template <typename Request, typename Response, typename Choose>
void ScoreRequest(const uint8_t* data, size_t size, Choose choose) {
  Request request;
  if (!ReceiveMessage(data, size, request)) return;
  CheckMessage(choose(request));
  Response response;
  Score(request, response);
}

}  // namespace ulfd::fuzz

#endif  // ULFD_TESTS_FUZZ_SCORING_REQUEST_H_
