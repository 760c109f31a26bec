// Reads cgroup v1 and v2 CPU quotas.  A quota that cannot be read counts as none: better too many
// threads than no server.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/cgroup.h"

namespace ulfd::server {
namespace {

// v2's cpu.max: "max 100000" or "250000 100000"; v1 has a file for each, and -1 for none.
std::optional<int64_t> WholeCpusIn(const std::string& directory) {
  int64_t quota_us = 0, period_us = 0;
  if (std::ifstream both(directory + "/cpu.max"); both) {
    both >> quota_us >> period_us;
  } else {
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota_us;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period_us;
  }
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return std::clamp<int64_t>(quota_us / period_us, 1, 1 << 16);
}

}  // namespace

std::optional<int> CgroupCpuQuota(const std::string& root) {
  const std::optional<int64_t> cpus = SmallestCgroupLimit(root, "cpu", WholeCpusIn);
  return cpus ? std::optional<int>(static_cast<int>(*cpus)) : std::nullopt;
}

std::vector<int> AffinityCpus() {
  // Machines with more than 1024 CPUs need a larger set: the kernel refuses a smaller one.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    const size_t size = CPU_ALLOC_SIZE(cpus);
    const bool ok = sched_getaffinity(0, size, set) == 0;
    std::vector<int> found;
    for (int cpu = 0; ok && cpu < cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, size, set)) found.push_back(cpu);
    }
    CPU_FREE(set);
    if (ok) return found;
  }
  return {};
}

int AffinityCpuCount() { return std::max(static_cast<int>(AffinityCpus().size()), 1); }

std::vector<int> SpreadOverCores(const std::string& root, const std::vector<int>& cpus) {
  // How many CPUs of its core come before each.
  std::map<std::string, int> seen;
  std::vector<std::pair<int, int>> order;
  for (int cpu : cpus) {
    std::ifstream file(
        absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = absl::StrCat("cpu ", cpu);
    order.emplace_back(seen[siblings]++, cpu);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> result;
  result.reserve(order.size());
  for (const auto& [turn, cpu] : order) result.push_back(cpu);
  return result;
}

int UsableCpuCount() {
  const int affinity = AffinityCpuCount();
  const auto quota = CgroupCpuQuota("");
  return quota ? std::min(*quota, affinity) : affinity;
}

}  // namespace ulfd::server
