// How many CPUs this process may really use: the smaller of its affinity mask and the CPU quota of
// its cgroup.
// SPDX-License-Identifier: Apache-2.0
#ifndef ULFD_SERVER_SCHEDULER_CPU_COUNT_H_
#define ULFD_SERVER_SCHEDULER_CPU_COUNT_H_

#include <optional>
#include <string>
#include <vector>

namespace ulfd::server {

// The CPU quota in whole CPUs, rounded down but at least 1: the tightest quota from the process's
// cgroup up to the root, for cgroup v2 (cpu.max) and v1 (cpu.cfs_quota_us / cpu.cfs_period_us).
// nullopt: there is none.  `root` goes before every path: "" for this machine, a directory with
// fake proc/ and sys/ trees in tests.
std::optional<int> CgroupCpuQuota(const std::string& root);

// CPUs in the calling thread's affinity mask, at least 1.
int AffinityCpuCount();

// The CPUs in the calling thread's affinity mask, ascending.
std::vector<int> AffinityCpus();

// The same CPUs in the order in which workers should get one each: every physical core once, then
// the second threads of cores (hyper-threads), and so on.  A CPU of which `root`/sys tells nothing
// counts as a core.
std::vector<int> SpreadOverCores(const std::string& root, const std::vector<int>& cpus);

// min of quota and affinity, at least 1.
int UsableCpuCount();

}  // namespace ulfd::server

#endif  // ULFD_SERVER_SCHEDULER_CPU_COUNT_H_
