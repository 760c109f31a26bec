// Heads of HTTP requests.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_request.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulfd::server;
  const absl::string_view text = ulfd::fuzz::AsText(data, size);
  const absl::string_view head = text.substr(0, FindHeadEnd(text));
  const HttpRequest request = ParseHead(head);
  if (request.refused != 0) {
    if (request.refused != 400 && request.refused != 405 && request.refused != 501) {
      ulfd::fuzz::Fail("an unknown refusal");
    }
    return 0;
  }
  if (request.path.find_first_of("? \n") != absl::string_view::npos) {
    ulfd::fuzz::Fail("a path with more than the path in it");
  }
  return 0;
}
