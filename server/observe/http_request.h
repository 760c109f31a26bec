// Heads of HTTP/1 requests, read without a socket.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_
#define ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace ulfd::server {

// Where the empty line that ends the head begins, or npos while it is not there yet.
size_t FindHeadEnd(absl::string_view text);

// What a head asks for.  The views point into it.
struct HttpRequest {
  int refused = 0;         // 400: no request line of HTTP/1; 405: a method other than these two.
  bool head_only = false;  // HEAD rather than GET.
  absl::string_view path;  // Without the query.
};
HttpRequest ParseHead(absl::string_view head);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_
