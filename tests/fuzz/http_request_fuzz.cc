// Heads of HTTP requests, and the trace that one names.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_request.h"
#include "server/observe/tracer.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  const absl::string_view head = text.substr(0, FindHeadEnd(text));
  const HttpRequest request = ParseHead(head);
  if (request.refused != 0) {
    if (request.refused != 400 && request.refused != 501) {
      ulfd::fuzz::Fail("an unknown refusal");
    }
    return 0;
  }
  if (request.path.find_first_of("? \n") != absl::string_view::npos) {
    ulfd::fuzz::Fail("a path with more than the path in it");
  }
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || name.find_first_of(": \t\n") != absl::string_view::npos ||
        value.find('\n') != absl::string_view::npos) {
      ulfd::fuzz::Fail("a header with more than one in it");
    }
  }
  const absl::string_view trace = request.Header("traceparent");
  const auto context = ParseTraceparent(trace);
  if (context.has_value() && TraceIdText(context->trace_id) != trace.substr(3, 32)) {
    ulfd::fuzz::Fail("another trace than the header's");
  }
  return 0;
}
