// GET and HEAD by libcurl, streamed.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_CLI_URL_CLIENT_H_
#define ULFD_TOOLS_CLI_URL_CLIENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ulfd::tools {

// Takes the next bytes of a file; an error ends the reading.
using ByteSink = absl::FunctionRef<absl::Status(absl::string_view)>;

struct UrlOptions {
  std::string ca_file;
  std::string bearer;                // Sent to the host of the URL alone.
  std::string sigv4;                 // "aws:amz:REGION:s3"; empty: nothing is signed.
  std::string key, secret;           // With sigv4.
  std::vector<std::string> headers;  // "Name: value".
  absl::Duration timeout = absl::InfiniteDuration();  // Of a whole transfer.
  bool proxies = true;                                // Those that the environment names.
  bool (*stopped)() = nullptr;                        // Ends transfers with CANCELLED.
};

// Headers of the answer itself, redirects apart.
struct UrlAnswer {
  int64_t bytes = -1;  // Content-Length.
  std::string tag;     // ETag, else Last-Modified.
};

// One connection at a time; for one thread.  Errors name the URL.  NOT_FOUND: 404.
// PERMISSION_DENIED: 401 and 403.  UNAVAILABLE: what may pass (408, 429, 5xx, connections that
// break, the timeout, 60 s for a head or page, 30 s of less than 16 KiB/s for a file).  CANCELLED:
// stopped.  FAILED_PRECONDITION: all others, such as a redirect to anything but http and https, or
// from https to http.
class UrlClient {
 public:
  explicit UrlClient(UrlOptions options);
  ~UrlClient();

  absl::StatusOr<UrlAnswer> Head(const std::string& url);
  // From byte `offset` on, whether or not the server knows ranges.  FAILED_PRECONDITION if `tag` is
  // not empty and the answer has another one.
  absl::Status Get(const std::string& url, int64_t offset, const std::string& tag, ByteSink sink);
  // The whole body.  OUT_OF_RANGE above 16 MiB: a listing without an end.
  absl::StatusOr<std::string> Page(const std::string& url);

 private:
  struct Transfer;
  void Configure(const std::string& url, const Transfer& transfer);
  absl::Status Perform(const std::string& url, Transfer& transfer);

  const UrlOptions options_;
  void* curl_ = nullptr;  // CURL*.
};

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_CLI_URL_CLIENT_H_
