// The model repository on disk: <repository>/<model>/<version>/.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_MODELS_REPOSITORY_H_
#define ULFD_SERVER_MODELS_REPOSITORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {

// Names of the directories in `repository`, sorted.  Names that begin with a dot, "lost+found", and
// names with control characters or bytes that are not UTF-8 are not models.  NOT_FOUND if it does
// not exist; any other code says nothing of what it holds (FAILED_PRECONDITION: more than 100000
// names).
absl::StatusOr<std::vector<std::string>> ListModelDirectories(const std::string& repository);

struct VersionList {
  std::vector<int64_t> versions;     // Ascending; directories, or symbolic links to some.
  std::vector<std::string> ignored;  // Everything else, sorted.
};
// Errors as above.
absl::StatusOr<VersionList> ListVersions(const std::string& base_path);

}  // namespace ulfd::server

#endif  // ULFD_SERVER_MODELS_REPOSITORY_H_
