// Heads of HTTP/1 requests.
// SPDX-License-Identifier: Apache-2.0
#include "server/observe/http_request.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace ulfd::server {

size_t FindHeadEnd(absl::string_view text) {
  return std::min(text.find("\r\n\r\n"), text.find("\n\n"));
}

HttpRequest ParseHead(absl::string_view head) {
  absl::string_view line = head.substr(0, head.find('\n'));
  if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return {.refused = 400};
  if (words[0] != "GET" && words[0] != "HEAD") return {.refused = 405};
  return {.head_only = words[0] == "HEAD", .path = words[1].substr(0, words[1].find('?'))};
}

}  // namespace ulfd::server
