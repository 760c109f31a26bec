// How much memory the process may have.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_BASE_MEMORY_LIMIT_H_
#define ULFD_BASE_MEMORY_LIMIT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ulfd {

// The tightest memory limit from the process's cgroup up to the root, for cgroup v2 (memory.max)
// and v1 (memory.limit_in_bytes).  nullopt: there is none.  `root` goes before every path: "" for
// this machine, a directory with fake proc/ and sys/ trees in tests.
std::optional<int64_t> CgroupMemoryLimit(const std::string& root);

// The smaller of CgroupMemoryLimit("") and the machine's memory.
int64_t MemoryLimit();

}  // namespace ulfd

#endif  // ULFD_BASE_MEMORY_LIMIT_H_
