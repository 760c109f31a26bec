// Web servers and object stores as sources.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_TOOLS_SYNC_URL_SOURCE_H_
#define ULFD_TOOLS_SYNC_URL_SOURCE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/cli/url_client.h"
#include "tools/sync/source.h"

namespace ulfd::tools {

// Directories are index pages; files are described by HEAD.
std::unique_ptr<Source> MakeWebSource(absl::string_view url, UrlOptions options);

// "BUCKET[/PREFIX]" by ListObjectsV2, the bucket in the path; keys from the environment.
// INVALID_ARGUMENT: no such bucket, half of the keys.
absl::StatusOr<std::unique_ptr<Source>> MakeObjectSource(absl::string_view bucket_and_prefix,
                                                         const SourceOptions& from,
                                                         UrlOptions options);

}  // namespace ulfd::tools

#endif  // ULFD_TOOLS_SYNC_URL_SOURCE_H_
