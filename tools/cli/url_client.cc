// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/url_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::tools {
namespace {

constexpr int64_t kMaxPageBytes = int64_t{16} << 20;
constexpr absl::Duration kMaxPageTime = absl::Seconds(60);
constexpr size_t kMaxErrorBytes = 2000;               // Kept of a body that explains an error.
constexpr curl_off_t kMaxOtherBytes = 1 << 20;        // Read of that, and of one beside a redirect.
constexpr size_t kMaxHeaderBytes = 1 << 20;           // libcurl bounds those before the body alone.
constexpr long kConnectSeconds = 10, kRedirects = 5;  // NOLINT: libcurl's type.
// For so long, less than that of a file's bytes, however many come to frame them.
constexpr long kSlowSeconds = 30, kLowestRate = 16 << 10;  // NOLINT

absl::StatusCode CodeOf(long http) {  // NOLINT: libcurl's type.
  if (http == 404) return absl::StatusCode::kNotFound;
  if (http == 401 || http == 403) return absl::StatusCode::kPermissionDenied;
  if (http == 408 || http == 429 || http >= 500) return absl::StatusCode::kUnavailable;
  return absl::StatusCode::kFailedPrecondition;
}

absl::StatusCode CodeOf(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return absl::StatusCode::kUnavailable;
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kFailedPrecondition;
  }
}

}  // namespace

// One request and what has come of its answer.
struct UrlClient::Transfer {
  void* curl = nullptr;
  bool (*stopped)() = nullptr;
  bool head = false;
  int64_t offset = 0;
  std::string wanted_tag;
  const ByteSink* sink = nullptr;
  absl::Duration longest = absl::InfiniteDuration();

  UrlAnswer answer;
  std::string etag, modified, encoding;
  bool ranged = false;   // The answer begins at `offset`.
  int64_t to_skip = -1;  // Bytes before `offset` that are still to come; -1: not known yet.
  std::string error_body;
  size_t header_bytes = 0;
  absl::Status status;

  long Code() const {  // NOLINT: libcurl's type.
    long code = 0;     // NOLINT
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  absl::Status CountHeader(size_t bytes) {
    header_bytes += bytes;
    if (header_bytes <= kMaxHeaderBytes) return absl::OkStatus();
    return OutOfRange("more than ", kMaxHeaderBytes, " bytes of headers");
  }

  void TakeHeader(absl::string_view line) {
    line = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(line, "HTTP/")) {  // The answer after a redirect begins anew.
      answer = {};
      etag = modified = encoding = "";
      ranged = false;
      return;
    }
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) return;
    const std::string name = absl::AsciiStrToLower(line.substr(0, colon));
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (name == "etag") etag = std::string(value);
    if (name == "last-modified") modified = std::string(value);
    if (name == "content-encoding") encoding = absl::AsciiStrToLower(value);
    if (name == "content-length" && !absl::SimpleAtoi(value, &answer.bytes)) answer.bytes = -1;
    if (name == "content-range")
      ranged = absl::StartsWith(value, absl::StrCat("bytes ", offset, "-"));
    answer.tag = etag.empty() ? modified : etag;
  }

  // OK if the answer's body is the file that was asked for.
  absl::Status CheckStart() {
    if (!encoding.empty() && encoding != "identity") {
      return FailedPrecondition("comes with Content-Encoding: ", Printable(encoding, 100),
                                ", want the file itself, which nobody asked to be compressed");
    }
    if (!wanted_tag.empty() && !answer.tag.empty() && answer.tag != wanted_tag) {
      return FailedPrecondition("changed while it was copied");
    }
    if (Code() == 206 && !ranged) {
      return FailedPrecondition("the answer is another part than that from byte ", offset);
    }
    to_skip = Code() == 206 ? 0 : offset;
    return absl::OkStatus();
  }

  absl::Status Error() const {
    return {CodeOf(Code()), absl::StrCat("HTTP ", Code(), error_body.empty() ? "" : " ",
                                         Printable(absl::StripTrailingAsciiWhitespace(error_body),
                                                   kMaxErrorBytes))};
  }

  absl::Status TakeBody(absl::string_view bytes) {
    if (Code() >= 300) {
      absl::StrAppend(&error_body, bytes.substr(0, kMaxErrorBytes - error_body.size()));
      return absl::OkStatus();
    }
    if (to_skip < 0) RETURN_IF_ERROR(CheckStart());
    const auto skipped =
        static_cast<size_t>(std::min<int64_t>(to_skip, static_cast<int64_t>(bytes.size())));
    to_skip -= static_cast<int64_t>(skipped);
    bytes.remove_prefix(skipped);
    return bytes.empty() ? absl::OkStatus() : (*sink)(bytes);
  }
};

namespace {

template <typename T>
size_t OnHeader(char* data, size_t size, size_t count, void* transfer) {
  auto* t = static_cast<T*>(transfer);
  t->status.Update(t->CountHeader(size * count));
  if (!t->status.ok()) return 0;
  t->TakeHeader({data, size * count});
  return size * count;
}

template <typename T>
size_t OnBody(char* data, size_t size, size_t count, void* transfer) {
  auto* t = static_cast<T*>(transfer);
  t->status = t->TakeBody({data, size * count});
  return t->status.ok() ? size * count : 0;
}

template <typename T>
int OnProgress(void* transfer, curl_off_t, curl_off_t received, curl_off_t, curl_off_t) {
  auto* t = static_cast<T*>(transfer);
  if (received > kMaxOtherBytes && t->Code() >= 300) {
    t->status = t->Error();
    return 1;
  }
  return t->stopped != nullptr && t->stopped() ? 1 : 0;
}

}  // namespace

UrlClient::UrlClient(UrlOptions options) : options_(std::move(options)) {
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (global == CURLE_OK) curl_ = curl_easy_init();
}

UrlClient::~UrlClient() {
  if (curl_ != nullptr) curl_easy_cleanup(curl_);
}

void UrlClient::Configure(const std::string& url, const Transfer& t) {
  curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl_, CURLOPT_NOBODY, t.head ? 1L : 0L);
  curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  if (const absl::Duration longest = std::min(options_.timeout, t.longest);
      longest != absl::InfiniteDuration()) {
    // 0 would be for ever.
    const int64_t timeout_ms = std::max<int64_t>(1, absl::ToInt64Milliseconds(longest));
    curl_easy_setopt(curl_, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_ms));  // NOLINT
  }
  if (!options_.proxies) curl_easy_setopt(curl_, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, kLowestRate);
  curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  // Nothing but the web, wherever a redirect leads, and never from TLS to plain text.
  curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl_, CURLOPT_REDIR_PROTOCOLS_STR,
                   absl::StartsWith(url, "https:") ? "https" : "http,https");
  // A session token is a header of its own, which libcurl would take along.
  curl_easy_setopt(curl_, CURLOPT_FOLLOWLOCATION, options_.sigv4.empty() ? 1L : 0L);
  curl_easy_setopt(curl_, CURLOPT_MAXREDIRS, kRedirects);
  if (!options_.ca_file.empty()) curl_easy_setopt(curl_, CURLOPT_CAINFO, options_.ca_file.c_str());
  if (!options_.bearer.empty()) {
    curl_easy_setopt(curl_, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl_, CURLOPT_XOAUTH2_BEARER, options_.bearer.c_str());
  }
  if (!options_.sigv4.empty()) {
    curl_easy_setopt(curl_, CURLOPT_AWS_SIGV4, options_.sigv4.c_str());
    curl_easy_setopt(curl_, CURLOPT_USERNAME, options_.key.c_str());
    curl_easy_setopt(curl_, CURLOPT_PASSWORD, options_.secret.c_str());
  }
}

absl::Status UrlClient::Perform(const std::string& url, Transfer& t) {
  if (curl_ == nullptr) return Internal("libcurl does not start");
  curl_easy_reset(curl_);  // Connections stay.
  t.curl = curl_;
  t.stopped = options_.stopped;
  Configure(url, t);
  curl_slist* headers = nullptr;
  for (const std::string& header : options_.headers) {
    headers = curl_slist_append(headers, header.c_str());
  }
  curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers);
  const std::string range = absl::StrCat(t.offset, "-");
  if (t.offset > 0) curl_easy_setopt(curl_, CURLOPT_RANGE, range.c_str());
  curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, &OnHeader<Transfer>);
  curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &t);
  curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, &OnBody<Transfer>);
  curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &t);
  curl_easy_setopt(curl_, CURLOPT_XFERINFOFUNCTION, &OnProgress<Transfer>);
  curl_easy_setopt(curl_, CURLOPT_XFERINFODATA, &t);
  curl_easy_setopt(curl_, CURLOPT_NOPROGRESS, 0L);
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, reason);
  const CURLcode code = curl_easy_perform(curl_);
  curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, nullptr);
  curl_slist_free_all(headers);
  const long http = t.Code();  // NOLINT: libcurl's type.
  if (!t.status.ok()) return Annotate(t.status, url);
  if (code != CURLE_OK) {
    return absl::Status(
        CodeOf(code), absl::StrCat(url, ": ", reason[0] != 0 ? reason : curl_easy_strerror(code)));
  }
  return http == 200 || http == 206 ? absl::OkStatus() : Annotate(t.Error(), url);
}

absl::StatusOr<UrlAnswer> UrlClient::Head(const std::string& url) {
  Transfer transfer;
  transfer.head = true;
  transfer.longest = kMaxPageTime;
  RETURN_IF_ERROR(Perform(url, transfer));
  return transfer.answer;
}

absl::Status UrlClient::Get(const std::string& url, int64_t offset, const std::string& tag,
                            ByteSink sink) {
  Transfer transfer;
  transfer.offset = offset;
  transfer.wanted_tag = tag;
  transfer.sink = &sink;
  return Perform(url, transfer);
}

absl::StatusOr<std::string> UrlClient::Page(const std::string& url) {
  std::string page;
  const auto append = [&](absl::string_view bytes) {
    if (static_cast<int64_t>(page.size() + bytes.size()) > kMaxPageBytes) {
      return OutOfRange("the listing has more than 16 MiB");
    }
    absl::StrAppend(&page, bytes);
    return absl::OkStatus();
  };
  const ByteSink sink = append;
  Transfer transfer;
  transfer.sink = &sink;
  transfer.longest = kMaxPageTime;
  RETURN_IF_ERROR(Perform(url, transfer));
  return page;
}

}  // namespace ulfd::tools
