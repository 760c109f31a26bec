// SPDX-License-Identifier: Apache-2.0
#include "tools/sync/source.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ulfd::tools {
namespace {

constexpr int64_t kMaxTokenBytes = 8192;

bool IsWeb(absl::string_view url) {
  return absl::StartsWith(url, "http://") || absl::StartsWith(url, "https://");
}

// As the other commands: in plain text to this machine alone.
bool MayCarryToken(absl::string_view url) {
  if (!absl::ConsumePrefix(&url, "http://")) return true;
  const absl::string_view host = url.substr(0, url.find_first_of(":/"));
  return host == "127.0.0.1" || host == "localhost";
}

// Credentials in a URL end up in logs and process lists.
absl::Status WantPlainUrl(absl::string_view url) {
  const absl::string_view rest = url.substr(url.find("//") + 2);
  const absl::string_view host = rest.substr(0, rest.find('/'));
  if (host.empty()) return InvalidArgument(Quote(url), " names no host");
  if (absl::StrContains(host, '@')) {
    return InvalidArgument("credentials in a URL, want --token_file");
  }
  if (absl::StrContains(url, '?') || absl::StrContains(url, '#')) {
    return InvalidArgument(Quote(url), " has a query or fragment, want a directory");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenSource(const std::string& from,
                                                   const SourceOptions& options) {
  UrlOptions url{.ca_file = options.ca_file, .stopped = options.stopped};
  absl::string_view rest = from;
  if (absl::ConsumePrefix(&rest, "s3://")) {
    if (!options.endpoint.empty()) {
      if (!IsWeb(options.endpoint)) {
        return InvalidArgument("--endpoint=", Quote(options.endpoint),
                               ", want http://... or https://...");
      }
      RETURN_IF_ERROR(WantPlainUrl(options.endpoint));
    }
    return MakeObjectSource(rest, options, std::move(url));
  }
  if (IsWeb(from)) {
    RETURN_IF_ERROR(WantPlainUrl(from));
    if (!options.token_file.empty()) {
      if (!MayCarryToken(from)) {
        return InvalidArgument("--token_file with plain http to another machine, want https");
      }
      ASSIGN_OR_RETURN(const std::string token, ReadFile(options.token_file, kMaxTokenBytes));
      url.bearer = std::string(absl::StripAsciiWhitespace(token));
    }
    return MakeWebSource(from, std::move(url));
  }
  if (absl::StrContains(from, "://")) {
    return InvalidArgument("source ", Quote(from),
                           ", want a directory, http://, https:// or s3://");
  }
  return MakeDirectorySource(from);
}

}  // namespace ulfd::tools
