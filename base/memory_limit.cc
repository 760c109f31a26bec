// Reads the limits of control groups.  One that cannot be read counts as none.
// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ulfd {
namespace {

// cgroup v1 says "no limit" by a number near 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> ReadLimit(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t bytes = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &bytes)) return std::nullopt;  // "max"
  if (bytes <= 0 || bytes >= kNoLimit) return std::nullopt;
  return bytes;
}

void KeepSmaller(std::optional<int64_t> candidate, std::optional<int64_t>& best) {
  if (candidate && (!best || *candidate < *best)) best = candidate;
}

// The tightest limit of mount + path and of every directory above it, up to the mount: inside a
// container the path may be one of the host, and the mount itself is then the cgroup.
std::optional<int64_t> Tightest(const std::string& mount, std::string path, const char* file) {
  std::optional<int64_t> best;
  while (true) {
    KeepSmaller(ReadLimit(absl::StrCat(mount, path, "/", file)), best);
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

}  // namespace

std::optional<int64_t> CgroupMemoryLimit(const std::string& root) {
  std::ifstream membership(root + "/proc/self/cgroup");
  std::optional<int64_t> best;
  // Lines: "0::/path" for v2, "9:memory:/path" for v1.
  for (std::string line; std::getline(membership, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[0] == "0" && parts[1].empty()) {
      KeepSmaller(Tightest(root + "/sys/fs/cgroup", path, "memory.max"), best);
      // Hybrid machines mount v2 beside v1.
      KeepSmaller(Tightest(root + "/sys/fs/cgroup/unified", path, "memory.max"), best);
    } else if (std::count(controllers.begin(), controllers.end(), "memory") > 0) {
      KeepSmaller(Tightest(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"), best);
    }
  }
  return best;
}

int64_t MemoryLimit() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, CgroupMemoryLimit("").value_or(machine));
}

}  // namespace ulfd
