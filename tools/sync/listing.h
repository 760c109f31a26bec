// What servers answer when they are asked for a listing.  Free of network; the text is hostile.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_LISTING_H_
#define ULFD_TOOLS_SYNC_LISTING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/sync/source.h"

namespace ulfd::tools {

// OK if `name` can be one component of a path below a directory of ours: not empty, "." or "..", no
// slash, no control character, UTF-8, at most 255 bytes.
absl::Status CheckName(absl::string_view name);

// The entries that an index page of a web server links to (nginx, Apache, Python and others), each
// once: hrefs that are one name, or one name and a slash.  Links elsewhere (up, to sort, absolute
// ones) are none of the directory's.  INVALID_ARGUMENT for a link that decodes to no name.
absl::StatusOr<std::vector<RemoteEntry>> ParseIndexPage(absl::string_view html);

// One page of ListObjectsV2 with the delimiter "/".
struct ObjectPage {
  std::vector<RemoteEntry> entries;
  std::string next;  // Token of the page after it; empty: the last one.
};
// INVALID_ARGUMENT: no such XML, a key that does not begin with `prefix`, or one whose rest is no
// name; FAILED_PRECONDITION: it goes on, but says not how.
absl::StatusOr<ObjectPage> ParseObjectPage(absl::string_view xml, absl::string_view prefix);

// `path` for a URL: everything but letters, digits, "-._~" and slashes as %XX.
std::string EncodePath(absl::string_view path);
// `text` for a query: slashes, too.
std::string EncodeQuery(absl::string_view text);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_LISTING_H_
