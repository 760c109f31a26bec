// Reads the limits of control groups.  One that cannot be read counts as none.
// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"

namespace ulfd {
namespace {

// cgroup v1 says "no limit" by a number near 2^63, v2 by "max".
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> LimitIn(const std::string& directory) {
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    int64_t bytes = 0;
    if (std::ifstream(directory + name) >> bytes && bytes > 0 && bytes < kNoLimit) return bytes;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> CgroupMemoryLimit(const std::string& root) {
  return SmallestCgroupLimit(root, "memory", LimitIn);
}

int64_t MemoryLimit() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, CgroupMemoryLimit("").value_or(machine));
}

}  // namespace ulfd
