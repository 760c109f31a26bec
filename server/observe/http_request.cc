// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ulfd::server {
namespace {

// 0, or why the headers are refused.
int ReadHeaders(absl::string_view lines, HttpRequest& request) {
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    line = absl::StripSuffix(line, "\r");
    if (line.empty()) continue;
    const size_t colon = line.find(':');
    // Folded lines, names with blanks and ends of lines that are none here are how requests are
    // smuggled past proxies.
    if (colon == 0 || colon == line.npos || line.substr(0, colon).find_first_of(" \t") < colon ||
        line.find_first_of(absl::string_view("\r\0", 2)) != line.npos) {
      return 400;
    }
    request.headers.emplace_back(line.substr(0, colon),
                                 absl::StripAsciiWhitespace(line.substr(colon + 1)));
    const auto& [name, value] = request.headers.back();
    if (absl::EqualsIgnoreCase(name, "transfer-encoding")) return 501;
    if (!absl::EqualsIgnoreCase(name, "content-length")) continue;
    uint64_t bytes = 0;
    const bool digits = value.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(value, &bytes) ||
        request.content_length.value_or(bytes) != bytes) {
      return 400;
    }
    request.content_length = bytes;
  }
  return 0;
}

// Of a target in origin form, or in absolute form, which servers must take, too.
absl::string_view PathOf(absl::string_view target) {
  target = target.substr(0, target.find('?'));
  if (absl::ConsumePrefix(&target, "http://")) {
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  return target;
}

// Whether a list with commas holds the word, in any case.
bool Lists(absl::string_view list, absl::string_view word) {
  for (const absl::string_view item : absl::StrSplit(list, ',')) {
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(item), word)) return true;
  }
  return false;
}

}  // namespace

size_t FindHeadEnd(absl::string_view text) {
  // An empty line, whichever end it and the line before it have: a proxy may go by either.
  for (size_t end = text.find('\n'); end != text.npos; end = text.find('\n', end + 1)) {
    absl::string_view rest = text.substr(end + 1);
    absl::ConsumePrefix(&rest, "\r");
    if (absl::ConsumePrefix(&rest, "\n")) return text.size() - rest.size();
  }
  return text.npos;
}

absl::string_view HttpRequest::Header(absl::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [name](const auto& header) {
    return absl::EqualsIgnoreCase(header.first, name);
  });
  return found == headers.end() ? absl::string_view() : found->second;
}

HttpRequest ParseHead(absl::string_view head) {
  const size_t line_end = head.find('\n');
  const absl::string_view line = absl::StripSuffix(head.substr(0, line_end), "\r");
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  const bool of_http = words.size() == 3 && words[2].size() == 8 &&
                       absl::StartsWith(words[2], "HTTP/1.") && absl::ascii_isdigit(words[2][7]);
  if (!of_http) return {.refused = 400};
  HttpRequest request{.method = words[0], .path = PathOf(words[1])};
  if (line_end != absl::string_view::npos) {
    request.refused = ReadHeaders(head.substr(line_end + 1), request);
  }
  const absl::string_view connection = request.Header("connection");
  request.keep_alive =
      !Lists(connection, "close") && (words[2] == "HTTP/1.1" || Lists(connection, "keep-alive"));
  return request;
}

}  // namespace ulfd::server
