// The JSON body of a REST request, with the bytes behind it; what it asks for is scored, and the
// reply is JSON again.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "server/scoring/inference_json.h"
#include "server/scoring/kserve_codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scoring_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  using ulfd::fuzz::Fail;
  const absl::string_view body = ulfd::fuzz::AsText(data, size);
  inference::ModelInferRequest request;
  BinaryOutputs binary;
  // A zero byte, which JSON has none of, ends the JSON.
  const size_t json_bytes = std::min(body.find('\0'), body.size());
  const absl::Status read = ParseInferBody(body, json_bytes, {.max_fields = 1000}, request, binary);
  ulfd::fuzz::CheckMessage(read);
  if (!read.ok()) return 0;
  if (request.inputs_size() > 1000) Fail("more inputs than fields are allowed");
  if (request.ByteSizeLong() > 16 * size + 1000) Fail("a message out of nothing");
  if (request.raw_input_contents_size() != 0 &&
      request.raw_input_contents_size() != request.inputs_size()) {
    Fail("bytes for some inputs only");
  }
  inference::ModelInferResponse response;
  if (!ulfd::fuzz::Score(request, response)) return 0;
  const auto reply = WriteInferBody(response, binary);
  ulfd::fuzz::CheckMessage(reply.status());
  if (!reply.ok()) return 0;
  const absl::string_view json = absl::string_view(reply->text).substr(0, reply->json_bytes);
  if (!nlohmann::json::accept(json.begin(), json.end())) Fail("a reply that is no JSON");
  return 0;
}
