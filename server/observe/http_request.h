// Heads of HTTP/1 requests, read without a socket.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_
#define ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace ulfd::server {

// The size of the head, with the empty line that ends it, or npos while that is not there yet.
size_t FindHeadEnd(absl::string_view text);

// What a head asks for.  The views point into it.
struct HttpRequest {
  // 400: no request line of HTTP/1, or headers that say two things; 501: a body in chunks.
  int refused = 0;
  absl::string_view method;  // "GET", or whatever stands there.
  absl::string_view path;    // Without the query.
  std::vector<std::pair<absl::string_view, absl::string_view>> headers;
  std::optional<uint64_t> content_length;
  bool keep_alive = false;  // The client would send another request.

  // The value of the first header of that name, in any case; "" if there is none.
  absl::string_view Header(absl::string_view name) const;
};
HttpRequest ParseHead(absl::string_view head);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_OBSERVE_HTTP_REQUEST_H_
