// Bodies of REST requests: JSON and what is behind it -> a message that is no larger than the body
// allows.
// SPDX-License-Identifier: Apache-2.0
#include "server/scoring/inference_json.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  const absl::string_view body = ulfd::fuzz::AsText(data, size);
  inference::ModelInferRequest request;
  BinaryOutputs binary;
  // A zero byte, which JSON has none of, ends the JSON.
  const size_t json_bytes = std::min(body.find('\0'), body.size());
  if (!ParseInferBody(body, json_bytes, {.max_fields = 1000}, request, binary).ok()) return 0;
  if (request.inputs_size() > 1000) ulfd::fuzz::Fail("more inputs than fields are allowed");
  if (request.ByteSizeLong() > 16 * size + 1000) ulfd::fuzz::Fail("a message out of nothing");
  if (request.raw_input_contents_size() != 0 &&
      request.raw_input_contents_size() != request.inputs_size()) {
    ulfd::fuzz::Fail("bytes for some inputs only");
  }
  return 0;
}
