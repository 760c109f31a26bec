// SPDX-License-Identifier: Apache-2.0
#include "base/load_place.h"

#include <unistd.h>

#include <climits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errors.h"
#include "base/file.h"
#include "base/load_scope.h"

namespace ulfd {

absl::Status CheckPlace(int fd, const std::string& path) {
  const LoadScope* const scope = LoadScope::Current();
  if (scope == nullptr || scope->limits().roots.empty()) return absl::OkStatus();
  const std::vector<std::string>& roots = scope->limits().roots;
  std::string resolved(PATH_MAX, '\0');
  const ssize_t size =
      readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), resolved.data(), resolved.size());
  if (size < 0) {  // Not "not found", which would be the file's.
    return Unavailable(path, ": cannot tell where it lies, /proc is not mounted");
  }
  resolved.resize(static_cast<size_t>(size));
  if (LiesWithin(resolved, roots)) return absl::OkStatus();
  return InvalidArgument(path, ": leads out of ", roots.front(),
                         " through a symbolic link (model_link_targets allows it)");
}

}  // namespace ulfd
