// Reads cgroup v1 and v2 CPU quotas.  A quota that cannot be read counts as none: better too many
// threads than no server.
// SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ulfd::server {
namespace {

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

std::optional<int> WholeCpus(int64_t quota_us, int64_t period_us) {
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<int64_t>(quota_us / period_us, 1, 1 << 16));
}

// cpu.max: "max 100000" or "250000 100000".
std::optional<int> QuotaV2(const std::string& directory) {
  const auto text = ReadFile(directory + "/cpu.max");
  if (!text) return std::nullopt;
  const std::vector<std::string> words = absl::StrSplit(*text, ' ', absl::SkipEmpty());
  int64_t quota = 0, period = 100000;
  if (words.empty() || !absl::SimpleAtoi(words[0], &quota)) return std::nullopt;  // "max"
  if (words.size() > 1 && !absl::SimpleAtoi(words[1], &period)) return std::nullopt;
  return WholeCpus(quota, period);
}

std::optional<int> QuotaV1(const std::string& directory) {
  const auto quota_text = ReadFile(directory + "/cpu.cfs_quota_us");
  const auto period_text = ReadFile(directory + "/cpu.cfs_period_us");
  int64_t quota = 0, period = 0;
  if (!quota_text || !period_text || !absl::SimpleAtoi(*quota_text, &quota) ||
      !absl::SimpleAtoi(*period_text, &period)) {
    return std::nullopt;
  }
  return WholeCpus(quota, period);  // -1: none.
}

using QuotaReader = std::optional<int>(const std::string& directory);

// The tightest quota of mount + path and of every directory above it, up to the mount.  Inside a
// container /proc/self/cgroup may name a path of the host that is not mounted: the mount itself is
// then the cgroup.
std::optional<int> Tightest(const std::string& mount, std::string path, QuotaReader* read) {
  std::optional<int> best;
  while (true) {
    if (const auto quota = read(mount + path)) best = best ? std::min(*best, *quota) : *quota;
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return best;
    path.resize(slash);
  }
}

bool HasController(absl::string_view controllers, absl::string_view wanted) {
  for (absl::string_view one : absl::StrSplit(controllers, ',')) {
    if (one == wanted) return true;
  }
  return false;
}

std::optional<int> Smaller(std::optional<int> a, std::optional<int> b) {
  if (!a) return b;
  if (!b) return a;
  return std::min(*a, *b);
}

}  // namespace

std::optional<int> CgroupCpuQuota(const std::string& root) {
  const auto membership = ReadFile(root + "/proc/self/cgroup");
  if (!membership) return std::nullopt;
  std::optional<int> best;
  // Lines: "0::/path" for v2, "4:cpu,cpuacct:/path" for v1.
  for (absl::string_view line : absl::StrSplit(*membership, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    if (parts[0] == "0" && parts[1].empty()) {
      best = Smaller(best, Tightest(root + "/sys/fs/cgroup", path, QuotaV2));
      // Hybrid machines mount v2 beside v1.
      best = Smaller(best, Tightest(root + "/sys/fs/cgroup/unified", path, QuotaV2));
    } else if (HasController(parts[1], "cpu")) {
      best = Smaller(best, Tightest(root + "/sys/fs/cgroup/cpu", path, QuotaV1));
      best = Smaller(best, Tightest(root + "/sys/fs/cgroup/cpu,cpuacct", path, QuotaV1));
    }
  }
  return best;
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
    const auto siblings = ReadFile(
        absl::StrCat(root, "/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    order.emplace_back(seen[siblings.value_or(absl::StrCat("cpu ", cpu))]++, cpu);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> result;
  for (const auto& [turn, cpu] : order) result.push_back(cpu);
  return result;
}

int UsableCpuCount() {
  const int affinity = AffinityCpuCount();
  const auto quota = CgroupCpuQuota("");
  return quota ? std::min(*quota, affinity) : affinity;
}

}  // namespace ulfd::server
