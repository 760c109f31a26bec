// Reads a page from an HTTP port, such as the daemon's /readyz.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLIENT_HTTP_GET_H_
#define ULFD_TOOLS_CLIENT_HTTP_GET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ulfd::tools {

struct HttpPage {
  int code = 0;
  std::string body;  // At most 64 KiB; the rest is not read.
};

// "http://HOST[:PORT][/PATH]", plain text, no redirects.  INVALID_ARGUMENT: no such URL;
// UNAVAILABLE: no connection, or something that is no HTTP; DEADLINE_EXCEEDED after `timeout`, the
// resolution of a host name not included.
absl::StatusOr<HttpPage> HttpGet(const std::string& url, absl::Duration timeout);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLIENT_HTTP_GET_H_
