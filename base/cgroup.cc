// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ulfd {

std::optional<int64_t> SmallestCgroupLimit(
    const std::string& root, absl::string_view controller,
    absl::FunctionRef<std::optional<int64_t>(const std::string& directory)> read) {
  std::ifstream membership(root + "/proc/self/cgroup");
  std::optional<int64_t> smallest;
  // Lines: "0::/path" for v2, "4:cpu,cpuacct:/path" for v1.
  for (std::string line; std::getline(membership, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    std::vector<std::string> mounts;
    if (parts[0] == "0" && parts[1].empty()) {
      mounts = {"", "/unified"};  // Hybrid machines mount v2 beside v1.
    } else {
      const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
      if (std::count(controllers.begin(), controllers.end(), controller) == 0) continue;
      mounts = {absl::StrCat("/", controller), absl::StrCat("/", parts[1])};
    }
    for (const std::string& mount : mounts) {
      // Inside a container the path may be one of the host: the mount itself is then the cgroup.
      std::string path = parts[2] == "/" ? "" : parts[2];
      while (true) {
        const std::optional<int64_t> limit =
            read(absl::StrCat(root, "/sys/fs/cgroup", mount, path));
        if (limit && (!smallest || *limit < *smallest)) smallest = limit;
        const size_t slash = path.rfind('/');
        if (slash == std::string::npos) break;
        path.resize(slash);
      }
    }
  }
  return smallest;
}

}  // namespace ulfd
